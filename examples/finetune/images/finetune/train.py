"""Fine-tune a small causal language model with LoRA.

The model and the text are made here, so that the image can be tested without a network. Replace
`small_model` by `AutoModelForCausalLM.from_pretrained(NAME)` for a real one.
"""

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def small_model() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=128,
    )
    return LlamaForCausalLM(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50, help="optimizer steps (default 50)")
    options = parser.parse_args()
    torch.manual_seed(0)
    # torch calls an AMD GPU "cuda", too.
    device = "cuda" if torch.cuda.is_available() else "cpu"
    adapter = LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(small_model(), adapter).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.arange(64, device=device).repeat(4, 1)
    losses = []
    for step in range(options.steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.4f} on {device}", flush=True)
    if losses[-1] >= losses[0]:
        raise SystemExit(f"the loss rose from {losses[0]:.4f} to {losses[-1]:.4f}")
    print(f"loss fell from {losses[0]:.4f} to {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
