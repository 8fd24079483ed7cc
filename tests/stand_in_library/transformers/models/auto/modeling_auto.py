"""The tables of the stand-in."""

MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = {
    "plain": "PlainForCausalLM",
    "lending": "LendingLMHeadModel",
    "holding": "HeldForCausalLM",
    "refusing": "RefusingForCausalLM",
    "dying": ("DyingForCausalLM",),
}
