"""What an image says of itself becomes a cell and claims, or is refused by the label's name."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from warpfront.errors import InputError
from warpfront.matrix.cell import Toolkit
from warpfront.verify.image_claims import claimed_cell, claimed_versions, claims_of

LABELS = {
    "dev.warpfront.cell": "nvidia-cuda130-sm90-py311-torch2141-torch",
    "dev.warpfront.content-hash": "ab" * 32,
    "dev.warpfront.vendor": "nvidia",
    "dev.warpfront.targets": "sm_80,sm_90",
    "dev.warpfront.toolkit": "cuda13.0",
    "dev.warpfront.python": "3.11",
    "dev.warpfront.torch": "2.14.1+cu130",
    "org.opencontainers.image.version": "2.14.1-cuda13.0-py3.11",
    "org.opencontainers.image.description": "PyTorch for CUDA",
}
ASKED = {"machine": ("aarch64",), "stack": ("torch==2.14.1+cu130", "torchvision===0.29.1", "no no")}


def said(**changes: str) -> Mapping[str, str]:
    named = {name.replace("_", "-"): text for name, text in changes.items()}
    return {**LABELS, **{f"dev.warpfront.{name}": text for name, text in named.items()}}


def test_labels_and_provenance_are_what_is_claimed() -> None:
    cell = claimed_cell(LABELS, ASKED, machine="x86_64")
    assert cell.toolkit == Toolkit(name="cuda", version="13.0")
    assert (cell.targets, cell.machine) == (("sm_80", "sm_90"), "aarch64")
    assert cell.local_reference == f"localhost/stranger/{cell.id}:{cell.tag}"
    claims = claims_of(cell, {"torch": "2.14.1+cu130", "numpy": "2.4.6"}, target="sm_90")
    assert (claims.vendor, claims.device, claims.python) == ("nvidia", "cuda", "3.11")
    assert claims.toolkit == ("cuda", "13.0")
    assert claims.stack == ("torch", "torchvision")
    assert claims.versions == {"torch": "2.14.1+cu130", "numpy": "2.4.6"}
    assert "sm_90" in claims.archs
    assert claims.guard is None


def test_without_provenance_torch_is_all_that_is_claimed() -> None:
    cell = claimed_cell(said(toolkit="", vendor="cpu", targets="x86_64"), {}, machine="x86_64")
    claims = claims_of(cell, {}, target="x86_64")
    assert (cell.toolkit, cell.machine, claims.device) == (None, "x86_64", "cpu")
    assert (claims.versions, claims.stack) == ({"torch": "2.14.1+cu130"}, ("torch",))


def test_wheels_are_read_of_their_purls() -> None:
    uris = ("pkg:pypi/torch@2.13.0%2Bcpu?x=1", "pkg:oci/base", "git+https://x", "pkg:pypi/uv")
    assert claimed_versions((*uris, "pkg:pypi/numpy@2.4.6")) == {
        "torch": "2.13.0+cpu",
        "numpy": "2.4.6",
    }


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("cell", "../../etc/cron.d/x"),
        ("cell", ""),
        ("content_hash", "1234"),
        ("vendor", "ascend"),
        ("targets", "sm_90,../results"),
        ("targets", ""),
        ("python", "3.11; rm -rf /"),
        ("torch", "2.14\nRUN x"),
        ("toolkit", "cuda"),
        ("toolkit", "oneapi2025"),
    ],
)
def test_labels_that_are_none_of_ours_are_refused_by_name(label: str, text: str) -> None:
    """They become folders, commands and messages."""
    with pytest.raises(InputError, match=f"dev.warpfront.{label.replace('_', '-')}"):
        claimed_cell(said(**{label: text}), {}, machine="x86_64")
