"""A configuration is made small by its names, values and neighbours. No torch, no library."""

from __future__ import annotations

import re
from typing import Any

import pytest

from warpfront_checks.architectures.roster import (
    LIBRARY_OPTIONS,
    Library,
    read_library,
)
from warpfront_checks.architectures.shrinking import MANNERS, VOCABULARY, small_values
from warpfront_checks.check_options import add_options, parsed

BY_NAME = {manner.name: manner for manner in MANNERS}
NAMED, EXACT = BY_NAME["sizes by name"], BY_NAME["in proportion"]


class Config:
    model_type = "part"

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


DECODER = Config(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    max_position_embeddings=32768,
    sliding_window=4096,
    attention_dropout=0.1,
    rope_theta=10000.0,
    num_experts=128,
    num_experts_per_tok=8,
    eos_token_id=151645,
    pad_token_id=0,
    use_cache=True,
    tie_word_embeddings=True,
    conv_kernel_size=4,
    layer_types=["sliding", "sliding", "sliding", "full"] * 9,
    mlp_only_layers=[3],
)


def test_sizes_become_small_by_name_and_one_layer_of_each_kind_stays() -> None:
    small = small_values(DECODER, NAMED)
    assert small["hidden_size"] == small["num_attention_heads"] * small["head_dim"] == 32
    assert 1 < small["num_key_value_heads"] < small["num_attention_heads"]
    assert small["vocab_size"] == VOCABULARY
    assert small["sliding_window"] < 16
    assert (small["num_experts"], small["num_experts_per_tok"]) == (4, 2)
    # Two kinds by type, and one layer that a list of numbers points at.
    assert small["num_hidden_layers"] == len(small["layer_types"])
    assert set(small["layer_types"]) == {"sliding", "full"}
    assert [small["layer_types"][place] for place in small["mlp_only_layers"]] == ["full"]
    assert small["attention_dropout"] == 0.0
    assert small["use_cache"] is False
    for kept in ("rope_theta", "conv_kernel_size", "tie_word_embeddings"):
        assert kept not in small


def test_of_many_layers_of_three_kinds_three_stay() -> None:
    """A model of 43 layers that kept 42 had no answer in ten minutes."""
    kinds = ["dense", "sparse", *["full", "sparse"] * 20]
    deep = Config(hidden_size=4096, num_attention_heads=32, num_hidden_layers=42, layer_types=kinds)
    small = small_values(deep, NAMED)
    assert (small["num_hidden_layers"], set(small["layer_types"])) == (3, set(kinds))


def test_of_layers_that_are_counted_from_an_end_or_share_some_of_each_sort_stay() -> None:
    counted = Config(
        hidden_size=4096,
        num_attention_heads=32,
        num_hidden_layers=60,
        first_k_dense_replace=3,
        num_kv_shared_layers=20,
        layer_types=["sliding", "full"] * 30,
    )
    small = small_values(counted, BY_NAME["two layers of each kind"])
    assert small["num_hidden_layers"] == 4
    assert (small["first_k_dense_replace"], small["num_kv_shared_layers"]) == (1, 1)


def test_products_hold_where_everything_is_divided_alike() -> None:
    mixer = Config(
        hidden_size=4096,
        num_attention_heads=32,
        mamba_expand=2,
        mamba_n_heads=128,
        mamba_d_head=64,
        num_hidden_layers=32,
    )
    small = small_values(mixer, EXACT)
    assert small["mamba_n_heads"] * small["mamba_d_head"] == 2 * small["hidden_size"]
    assert "mamba_expand" not in small


def test_tokens_stay_below_the_vocabulary_and_parts_agree_on_them() -> None:
    text = Config(**{**DECODER.to_dict(), "image_token_id": 151655})
    whole = Config(image_token_id=151655, vocab_size=151936, text_config=text)
    small = small_values(whole, NAMED)
    assert small["image_token_id"] == small["text_config"]["image_token_id"] < VOCABULARY
    assert small["text_config"]["eos_token_id"] != small["image_token_id"]
    assert small["text_config"]["model_type"] == "part"
    assert small["text_config"]["pad_token_id"] == 0


def test_what_is_none_gets_a_size_only_where_that_is_asked_for() -> None:
    bare = Config(hidden_size=2048, num_attention_heads=16, head_dim=None, n_routed_experts=None)
    assert "head_dim" not in small_values(bare, NAMED)
    filled = small_values(bare, BY_NAME["what is None filled in"])
    assert (filled["head_dim"], filled["n_routed_experts"]) == (8, 4)


def test_a_count_that_is_a_lists_length_stays_the_lists_length() -> None:
    sound = Config(
        hidden_size=768,
        num_attention_heads=12,
        num_hidden_layers=12,
        num_feat_extract_layers=7,
        conv_dim=[512] * 7,
        conv_stride=[5, 2, 2, 2, 2, 2, 2],
    )
    small = small_values(sound, NAMED)
    assert "num_feat_extract_layers" not in small
    assert len(small["conv_dim"]) == 7
    assert max(small["conv_dim"]) < 64
    assert "conv_stride" not in small


def test_no_architecture_is_known_by_name() -> None:
    import warpfront_checks.architectures.shrinking as module

    with open(module.__file__, encoding="utf-8") as file:  # noqa: PTH123
        text = file.read()
    assert not re.search(r"llama|qwen|mamba|mixtral|bert|whisper|gemma|deepseek", text)


def test_what_is_asked_of_a_library_is_read_and_said_again() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    add_options(parser, LIBRARY_OPTIONS)
    words = ["--library", "transformers", "--architectures", "llama, t5", "--modes", "all"]
    asked = parsed(parser.parse_args(words), LIBRARY_OPTIONS, read_library)
    assert asked.architectures == ("llama", "t5")
    assert "compiled" in asked.modes
    assert parsed(parser.parse_args(asked.arguments()), LIBRARY_OPTIONS, read_library) == asked
    assert parsed(parser.parse_args([]), LIBRARY_OPTIONS, read_library) == Library(
        library="transformers"
    )
    with pytest.raises(SystemExit):
        parser.parse_args(["--kinds", "moon"])
    plain = dict.fromkeys((option.attribute for option in LIBRARY_OPTIONS), "")
    with pytest.raises(ValueError, match="--kinds 'moon' is none of"):
        read_library(**{**plain, "kinds": "moon"})
