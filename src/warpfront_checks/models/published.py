"""The model families as `transformers` publishes them, from small configurations with random
weights. Nothing is downloaded. Only where the image has `transformers`.

No Mixtral: its experts are chosen per token, and a choice that is close to a tie is no question of
right or wrong. `moe` in `families` is that family's stand-in.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from warpfront_checks.models.families import (
    CLASSES,
    HEADS,
    LENGTH,
    VOCABULARY,
    WIDTH,
    Family,
    Model,
)

_SHORT = 17
_TEXT: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "use_cache": False,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0),
}
_SIZES: Mapping[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
# Per family: configuration, model, the names of the inputs, and the configuration's values.
_MODELS: Mapping[str, tuple[str, str, tuple[str, ...], Mapping[str, Any]]] = {
    "bert": (
        "BertConfig",
        "BertForMaskedLM",
        ("input_ids",),
        {**_TEXT, **_SIZES, **_NO_DROPOUT, "max_position_embeddings": LENGTH},
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        ("input_ids",),
        {
            **_TEXT,
            "n_embd": WIDTH,
            "n_layer": 2,
            "n_head": HEADS,
            "n_positions": LENGTH,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        },
    ),
    "llama": (
        "LlamaConfig",
        "LlamaForCausalLM",
        ("input_ids",),
        {**_TEXT, **_SIZES, "num_key_value_heads": HEADS // 2},
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        ("input_ids", "decoder_input_ids"),
        {
            **_TEXT,
            "d_model": WIDTH,
            "d_kv": WIDTH // HEADS,
            "d_ff": 2 * WIDTH,
            "num_layers": 1,
            "num_heads": HEADS,
            "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu",
            "decoder_start_token_id": 0,
        },
    ),
    "vit": (
        "ViTConfig",
        "ViTForImageClassification",
        ("pixel_values",),
        {**_SIZES, **_NO_DROPOUT, "image_size": 25, "patch_size": 5, "num_labels": CLASSES},
    ),
    "whisper": (
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        ("input_features", "decoder_input_ids"),
        {
            **_TEXT,
            "d_model": WIDTH,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "num_mel_bins": 20,
            "encoder_attention_heads": HEADS,
            "decoder_attention_heads": HEADS,
            "encoder_ffn_dim": 2 * WIDTH,
            "decoder_ffn_dim": 2 * WIDTH,
            "dropout": 0.0,
            "max_source_positions": LENGTH,
            "max_target_positions": _SHORT,
            "decoder_start_token_id": 0,
        },
    ),
}


class Published(Model):
    """A model of `transformers` with our loss: logits and loss, the last input is the target."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__(model)
        self.names = names

    def predict(self, *inputs: Tensor) -> Tensor:
        return self.body(**dict(zip(self.names, inputs, strict=True))).logits


def published_families() -> tuple[Family, ...]:
    """Return the published families. Raise ImportError if this `transformers` does not know a
    family: that is a finding.
    """
    return tuple(
        Family(
            name=f"transformers {name}",
            build=functools.partial(_build, name),
            inputs=functools.partial(_inputs, name),
        )
        for name in _MODELS
    )


def _build(name: str) -> nn.Module:
    library: Any = importlib.import_module("transformers")
    configuration, model, names, values = _MODELS[name]
    config = getattr(library, configuration)(**values)
    return Published(getattr(library, model)(config), names)


def _inputs(name: str, generator: torch.Generator) -> tuple[Tensor, ...]:
    def tokens(length: int) -> Tensor:
        return torch.randint(1, VOCABULARY, (2, length), generator=generator)

    if name == "vit":
        classes = torch.randint(0, CLASSES, (3,), generator=generator)
        return torch.randn(3, 3, 25, 25, generator=generator), classes
    if name == "whisper":
        return torch.randn(2, 20, 2 * LENGTH, generator=generator), tokens(_SHORT), tokens(_SHORT)
    if name == "t5":
        return tokens(LENGTH), tokens(_SHORT), tokens(_SHORT)
    return tokens(LENGTH), tokens(LENGTH)
