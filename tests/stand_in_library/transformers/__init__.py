"""A library of models with the surface that ours reads of `transformers`: a stand-in, for tests
where that is not installed. Each of its types is odd in one way.
"""

from __future__ import annotations

import os
import signal
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

__version__ = "5.23.0"


class Config:
    """As a configuration of the library: its values are its attributes."""

    model_type = ""
    is_encoder_decoder = False
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **values: Any) -> None:
        usual = {"vocab_size": 32000, "hidden_size": 4096, "num_hidden_layers": 32}
        self.__dict__.update({**usual, **self.defaults, **values})
        if self.hidden_size % self.num_attention_heads:
            raise ValueError("heads do not divide the width")

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


class PlainConfig(Config):
    model_type = "plain"
    defaults: ClassVar[dict[str, Any]] = {
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "pad_token_id": 31999,
        "layer_types": ["wide", "wide", "gated", "wide"] * 8,
    }


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        # As libraries do: float32 in the middle, whatever comes in.
        wide = x.to(torch.float32)
        wide = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
        return self.weight * wide.to(x.dtype)


class Block(nn.Module):
    def __init__(self, config: Any, kind: str) -> None:
        super().__init__()
        width = config.hidden_size
        self.norm, self.kind = Norm(width), kind
        self.up = nn.Linear(width, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, width)
        self.act_fn: nn.Module = nn.GELU() if kind == "gated" else nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act_fn(self.up(self.norm(x))))


class Found(dict[str, Tensor]):
    @property
    def logits(self) -> Tensor:
        return self["logits"]


class PlainForCausalLM(nn.Module):
    config_class: Any = PlainConfig
    main_input_name = "input_ids"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.layers = nn.ModuleList(Block(config, kind) for kind in config.layer_types)
        self.never_used = nn.Linear(2, 2)
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, input_ids: Tensor) -> Found:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return Found(logits=self.head(x))


class LendingConfig(PlainConfig):
    model_type = "lending"


class LendingLMHeadModel(PlainForCausalLM):
    """Its table of words is a head as well, without being called."""

    config_class = LendingConfig

    def forward(self, input_ids: Tensor) -> Found:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return Found(logits=x @ self.embed.weight.t())


class HoldingConfig(PlainConfig):
    """Of a whole model, of which the class below is a part."""

    model_type = "holding"

    def __init__(self, part: Any = None, **values: Any) -> None:
        if part is None:
            raise ValueError("a whole has to be given its parts")
        super().__init__(**values)


class HeldForCausalLM(PlainForCausalLM):
    """Takes its part's configuration, which has a default."""


class RefusingConfig(PlainConfig):
    model_type = "refusing"


class RefusingForCausalLM(PlainForCausalLM):
    config_class = RefusingConfig

    def forward(self, input_ids: Tensor) -> Found:
        raise ValueError(f"this one asks for a moon beside {tuple(input_ids.shape)}")


class DyingConfig(PlainConfig):
    model_type = "dying"


class DyingForCausalLM(PlainForCausalLM):
    config_class = DyingConfig

    def forward(self, input_ids: Tensor) -> Found:
        os.kill(os.getpid(), signal.SIGSEGV)
        return super().forward(input_ids)
