"""The configurations of the stand-in, by type."""

import transformers

CONFIG_MAPPING = {
    one.model_type: one
    for one in (
        transformers.PlainConfig,
        transformers.LendingConfig,
        transformers.HoldingConfig,
        transformers.RefusingConfig,
        transformers.DyingConfig,
    )
}
