"""The operator database is swept by more than its own first samples: each way is what a wrong
kernel is seen by that torch's samples in floating dtypes do not show.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed; runs inside the built image")

from kernels.kernel import WrongKernel, seeded  # noqa: E402

from warpfront_checks.check_options import CheckOptions  # noqa: E402
from warpfront_checks.opinfo import sweep  # noqa: E402
from warpfront_checks.opinfo.adapter import Entry, load_database  # noqa: E402

# torch's test package looks for GPUs.
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def database() -> dict[str, Entry]:
    return {entry.name: entry for entry in load_database()}


def refused(entry: Entry) -> set[str]:
    """The sweeps that find a fault in what an entry gives."""
    asked = sweep.sweeps_of("cpu", CheckOptions(seeds=(3,)))
    return {one.name for one in asked if sweep.sweep_entries([entry], one).faults}


def turned(right: Any, x: Any, **out: Any) -> Any:
    """Reads a table whose columns are rows of memory as if it were none."""
    result = right(x, **out)
    return result.mul_(2) if x.dim() == 2 and x.stride(0) == 1 < x.stride(1) else result


def narrow(right: Any, x: Any, y: Any, **named: Any) -> Any:
    """Bytes are held to what they have without a sign."""
    result = right(x, y, **named)
    return result.clamp_(max=127) if result.dtype == torch.uint8 else result


def real(right: Any, x: Any, y: Any, **named: Any) -> Any:
    result = right(x, y, **named)
    if result.dtype == torch.complex64:
        result.imag.zero_()
    return result


def truths(right: Any, x: Any, y: Any, **named: Any) -> Any:
    """One true and the other is none, as truths are added modulo two."""
    result = right(x, y, **named)
    return result.copy_(x ^ y) if result.dtype == torch.bool else result


SIN, ADD = ("sin", "sin.out"), ("add.Tensor", "add.out")
WAYS: dict[str, tuple[str, tuple[str, ...], Any, str]] = {
    "turned": ("sin", SIN, turned, "float32"),
    "narrow": ("add", ADD, narrow, "uint8"),
    "real": ("add", ADD, real, "complex64"),
    "truths": ("add", ADD, truths, "bool"),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_wrong_in_one_way_is_seen_by_its_sweep_and_nothing_without(
    way: str, database: dict[str, Entry]
) -> None:
    name, operators, wrong, seen_by = WAYS[way]
    with seeded(WrongKernel(way, operators, wrong), "cpu"):
        assert seen_by in refused(database[name])
    assert refused(database[name]) == set()


def test_where_nothing_was_seen_to_be_right_only_torchs_own_samples_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = [one.name for one in sweep.sweeps_of("cpu", CheckOptions(seeds=(3,)))]
    monkeypatch.setattr(sweep, "SEEN_ON", ())
    there = [one.name for one in sweep.sweeps_of("cpu", CheckOptions(seeds=(3,)))]
    assert {"uint8", "complex64"} <= set(here) - set(there)


def test_among_equals_another_device_than_the_reference_may_choose() -> None:
    """What a CPU takes of equal numbers is what the reference takes: there it is judged."""
    assert sweep.excluded("sort", "uint8", "cuda", backward=False)
    for device, dtype in (("cpu", "uint8"), ("cuda", "int64"), ("cuda", "float32")):
        assert not sweep.excluded("sort", dtype, device, backward=False)
