"""Large wheels have layers of their own, and an image stays far below 127."""

from __future__ import annotations

from warpfront.wheels.layers.layer_store import (
    ALONE_BYTES,
    MOST_ALONE,
    layer_sets,
)
from warpfront.wheels.lock.values import LockedWheel


def a_wheel(name: str, size_bytes: int) -> LockedWheel:
    return LockedWheel(
        name=name, version="1", filename=f"{name}.whl", sha256="0", size_bytes=size_bytes, index=""
    )


LARGE = [a_wheel(name, ALONE_BYTES) for name in ("torch", "nvidia-cublas")]
SMALL = [a_wheel(name, ALONE_BYTES - 1) for name in ("sympy", "jinja2")]


def test_small_wheels_share_a_layer_and_large_ones_do_not() -> None:
    jinja2, sympy, cublas, torch = SMALL[1], SMALL[0], LARGE[1], LARGE[0]
    expected = ((jinja2, sympy), (cublas,), (torch,))
    assert layer_sets([*LARGE, *SMALL]) == expected
    assert layer_sets(reversed([*LARGE, *SMALL])) == expected, "whatever the order"
    assert layer_sets(LARGE) == ((cublas,), (torch,))
    assert layer_sets([]) == ()


def test_the_largest_are_alone_where_there_are_too_many() -> None:
    wheels = [a_wheel(f"rocm-{index:03}", ALONE_BYTES + index) for index in range(MOST_ALONE + 60)]
    together, *alone = layer_sets(wheels)
    assert len(alone) == MOST_ALONE
    assert len(together) == 60
    assert min(one.size_bytes for (one,) in alone) > max(one.size_bytes for one in together)
