"""Inputs for a model of an unknown kind: by the parameters of its forward pass, and by its
configuration of images and sound. Several ways, best first. Pure.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

BATCH, LENGTH, SHORT, FRAMES, SAMPLES = 2, 17, 9, 64, 4000
# Below the numbers of special tokens, and above those of most libraries.
FIRST_TOKEN, LAST_TOKEN = 5, 96

Feed = Mapping[str, Tensor]
_BANDS = (
    "num_mel_bins",
    "n_mels",
    "feature_projection_input_dim",
    "input_feat_per_channel",
    "input_dim",
)


def feeds(model: nn.Module, config: Any, seed: int) -> Iterator[Feed]:
    """Yield inputs for the model's `forward`: the same numbers for a seed, on every machine."""
    names = tuple(inspect.signature(model.forward).parameters)
    main = str(getattr(model, "main_input_name", "input_ids"))
    for shape in _shapes(names, main, config):
        generator = torch.Generator().manual_seed(seed)
        yield {name: _drawn(size, config, generator) for name, size in shape.items()}


# A size that begins with a word is of whole numbers: tokens of that length, or ones.
Size = tuple[Any, ...]


def _shapes(names: tuple[str, ...], main: str, config: Any) -> Iterator[Mapping[str, Size]]:
    text = {"input_ids": ("tokens", BATCH, LENGTH)} if "input_ids" in names else {}
    answer = {"decoder_input_ids": ("tokens", BATCH, SHORT)} if "decoder_input_ids" in names else {}
    for pixels in _pictures(names, config):
        if text and main != "input_ids":
            yield {**pixels, **answer}
        yield {**text, **pixels, **answer}
        if not text:
            yield pixels
    for sound in _sounds(names, config):
        yield {**sound, **answer}
        yield sound
        if text:
            yield {**text, **sound, **answer}
    if text:
        yield {**text, **answer}
        books = _value(config, "num_codebooks", 4)
        yield {"input_ids": ("tokens", BATCH * books, LENGTH)}
        yield {"input_ids": ("tokens", BATCH, books, LENGTH)}
        yield {"input_ids": ("tokens", BATCH, LENGTH, books)}
        yield {"input_ids": ("tokens", BATCH, LENGTH, books + 1)}
    if "decoder_input_ids" in names and not text:
        yield dict(answer)
    if "past_values" in names:
        length = _value(config, "context_length", 32)
        yield {"past_values": (BATCH, length, _value(config, "num_input_channels", 1))}
        yield {"past_values": (BATCH, length)}


def _pictures(names: tuple[str, ...], config: Any) -> Iterator[Mapping[str, Size]]:
    name = next((n for n in ("pixel_values", "pixel_values_videos") if n in names), "")
    if not name:
        return
    channels = _value(config, "num_channels", _value(config, "in_channels", 3))
    size = _value(config, "image_size", 32)
    high, wide = (tuple(size) * 2)[:2] if isinstance(size, (list, tuple)) else (size, size)
    frames = _value(config, "num_frames", 0)
    if frames:
        yield {name: (BATCH, frames, channels, high, wide)}
        yield {name: (BATCH, channels, frames, high, wide)}
    yield {name: (BATCH, channels, high, wide)}
    yield {name: (BATCH, channels, 64, 64)}
    yield {name: (BATCH, 1, channels, high, wide)}
    yield {name: (BATCH, 2, channels, high, wide)}


def _sounds(names: tuple[str, ...], config: Any) -> Iterator[Mapping[str, Size]]:
    if "input_features" in names:
        values = (_value(config, band, None) for band in _BANDS)
        bands = next((value for value in values if value is not None), 16)
        frames = 2 * _value(config, "max_source_positions", FRAMES // 2)
        yield {"input_features": (BATCH, bands, frames)}
        yield {"input_features": (BATCH, FRAMES, bands)}
        yield {"input_features": (BATCH, bands, 8 * LENGTH)}
        yield {"input_features": (BATCH, bands, FRAMES)}
        yield {"input_features": (BATCH, FRAMES, bands), "attention_mask": ("ones", BATCH, FRAMES)}
        yield {"input_features": (BATCH, 1, FRAMES, bands)}
    if "input_values" in names:
        yield {"input_values": (BATCH, SAMPLES)}
        yield {"input_values": (BATCH, 1, SAMPLES)}
        bands = _value(config, "num_mel_bins", 16)
        yield {"input_values": (BATCH, _value(config, "max_length", FRAMES), bands)}


def _drawn(size: Size, config: Any, generator: torch.Generator) -> Tensor:
    if size[0] == "ones":
        return torch.ones(size[1:], dtype=torch.int64)
    if size[0] == "tokens":
        most = min(LAST_TOKEN, int(_value(config, "vocab_size", LAST_TOKEN)))
        return torch.randint(min(FIRST_TOKEN, most - 1), most, size[1:], generator=generator)
    return torch.randn(size, generator=generator)


def _value(config: Any, name: str, default: Any) -> Any:
    """Return a value of a configuration or a part of it, its own value first."""
    value = getattr(config, name, None)
    if value is not None and not isinstance(value, (str, bool)):
        return value
    for part in vars(config).values():
        if hasattr(part, "to_dict") and hasattr(part, "model_type"):
            nested = _value(part, name, None)
            if nested is not None:
                return nested
    return default
