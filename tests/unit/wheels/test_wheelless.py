"""What has no wheel is refused with the way out, and only where that is why; in uv's own words."""

from __future__ import annotations

import pytest

from warpfront.wheels.resolve.candidates import (
    refusal,
    requirers_without_wheels,
    way_out,
    wheelless,
)

FLASH = """
    Because all versions of flash-attn have no usable wheels and cpu-x86_64-py311-torch2130-flash
    depends on flash-attn, we can conclude that your requirements are unsatisfiable.
    hint: Wheels are required for `flash-attn` because building from source is disabled
"""
PINNED = (
    "Because flash-attn==2.8.3 has no usable wheels and here depends on flash-attn==2.8.3, we can "
    "conclude that your requirements are unsatisfiable."
)
# Some of its versions have none, and that is not why.
OTHERWISE = """
    Because lmcache<=0.3.0 has no usable wheels and lmcache==0.5.6 depends on numpy<=2.2.6, we can
    conclude that lmcache depends on numpy<=2.2.6.
    And because here depends on numpy==2.4.6 and lmcache, we can conclude that your requirements
    are unsatisfiable.
"""


@pytest.mark.parametrize(
    ("said", "name"), [(FLASH, "flash-attn"), (PINNED, "flash-attn"), (OTHERWISE, ""), ("", "")]
)
def test_a_package_without_a_wheel_is_named_where_that_alone_is_why(said: str, name: str) -> None:
    assert wheelless(said) == name


@pytest.mark.timeout(20)
@pytest.mark.parametrize("word", ["a", "a-", "a.", "a[", "a{", "a=", "1<", "a<=1,"])
def test_a_name_of_any_length_is_read_in_time(word: str) -> None:
    """A wheel's METADATA names what it requires, and uv repeats that."""
    explanation = f"Because here depends on {word * 100_000} and {FLASH}"
    assert wheelless(explanation) == ""
    assert requirers_without_wheels(explanation, ()) == ("flash-attn",)


def test_the_way_out_is_to_build_it_or_to_know_that_it_is_in_vain() -> None:
    assert "has no wheel for this image" in refusal("flash-attn")
    assert way_out("flash-attn", "cpu").startswith("flash-attn has no kernels for the CPU")
    assert way_out("flash-attn", "nvidia").startswith("`builds: flash-attn:`")
    anywhere = way_out("flash-attn")
    assert anywhere.startswith("`builds: flash-attn:`")
    assert "no kernels for the CPU" in anywhere
    assert way_out("nobody-described-it") == way_out("nobody-described-it", "amd")
