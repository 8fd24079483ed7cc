"""Labels and tag of an image against the facts found inside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import A_PROJECT, A_RESOLVED_BASE, a_lock, a_patched_lock, a_wheel

from warpfront.images.built import ResolvedBase
from warpfront.images.labels import image_labels, label_disagreements
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.pipeline.workspace import open_workspace
from warpfront.release.why import Why, why_text
from warpfront.system.tree_files import Provenance
from warpfront_checks.distributions import Installed
from warpfront_checks.load import patched_versions

CELLS = open_workspace(Path(__file__).parents[3]).matrix.cells


def cell_of(vendor: str, toolkit: str = "") -> Cell:
    return next(
        cell
        for cell in CELLS
        if (cell.vendor, str(cell.toolkit or ""), cell.image) == (vendor, toolkit, "torch")
    )


CPU = cell_of("cpu")
CUDA = cell_of("nvidia", "cuda13.0")
ROCM = cell_of("amd", "rocm6.4")
GAUDI = cell_of("gaudi", "synapseai1.24.1")
TRUE: Mapping[str, tuple[Cell, dict[str, Any]]] = {
    "cpu": (CPU, {"torch": "2.13.0+cpu", "toolkit": "", "python": "3.11", "archs": []}),
    "cuda": (
        CUDA,
        {
            "torch": "2.14.1",
            "toolkit": "cuda13.0",
            "python": "3.11",
            "archs": ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120"],
        },
    ),
    "rocm": (
        ROCM,
        {
            "torch": "2.9.1+rocm6.4",
            "toolkit": "rocm6.4",
            "python": "3.13",
            "archs": ["gfx90a", "gfx942", "gfx1100"],
        },
    ),
    "gaudi": (
        GAUDI,
        {"torch": "2.11.0a0+git1234", "toolkit": "", "python": "3.12", "archs": []},
    ),
}


def labels_of(cell: Cell, base: ResolvedBase = A_RESOLVED_BASE) -> dict[str, str]:
    wheels = [a_wheel(pin.name, pin.version) for pin in cell.stack]
    wheels = wheels or [a_wheel("pip", "26.2.1")]  # Gaudi's torch comes with the base
    return dict(
        image_labels(
            cell,
            project=A_PROJECT,
            lock=a_lock(cell, *wheels),
            base=base,
            content_hash="ff",
            provenance=Provenance(created="2026-01-01T00:00:00+00:00", revision="abc"),
            uv="0.13.9",
        )
    )


@pytest.mark.parametrize("kind", TRUE)
def test_an_image_that_holds_what_it_says_is_not_denied(kind: str) -> None:
    cell, facts = TRUE[kind]
    assert [*label_disagreements(cell, labels_of(cell), {**facts, "relaxed": []})] == []


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("cpu", {"torch": "2.13.0"}, "dev.warpfront.torch says '2.13.0+cpu'"),
        ("cpu", {"torch": "2.13.0+cu130", "toolkit": "cuda13.0"}, "does not name the toolkit"),
        ("cpu", {"python": "3.12"}, "does not name the python of the image, py3.12"),
        ("cpu", {"relaxed": ["vllm"]}, "dev.warpfront.relaxed says ''"),
        ("cuda", {"toolkit": "cuda13.2"}, "dev.warpfront.toolkit says 'cuda13.0'"),
        ("cuda", {"archs": ["sm_75", "sm_80"]}, "target sm_90 is promised"),
        ("rocm", {"torch": "2.12.1+rocm6.4"}, "does not name the torch of the image, 2.12.1"),
        ("rocm", {"archs": ["gfx90a", "gfx942"]}, "target gfx1100 is promised"),
        ("gaudi", {"torch": "2.10.0a0+git1234"}, "does not name the torch of the image, 2.10.0"),
    ],
)
def test_what_the_image_denies_is_named(kind: str, change: dict[str, Any], said: str) -> None:
    cell, facts = TRUE[kind]
    wrong = [*label_disagreements(cell, labels_of(cell), {**facts, "relaxed": [], **change})]
    assert any(said in line for line in wrong), wrong


@pytest.mark.parametrize("kind", ["cpu", "cuda", "rocm"])
@pytest.mark.parametrize(
    "label",
    [
        "dev.warpfront.torch",
        "dev.warpfront.toolkit",
        "dev.warpfront.python",
        "dev.warpfront.targets",
        "org.opencontainers.image.version",
    ],
)
def test_a_label_that_lies_is_named(kind: str, label: str) -> None:
    cell, facts = TRUE[kind]
    for lie in ({**labels_of(cell), label: "9.9"}, {**labels_of(cell), label: "sm_90"}):
        wrong = [*label_disagreements(cell, lie, {**facts, "relaxed": []})]
        assert any(label in line for line in wrong), wrong


def test_an_image_without_labels_is_denied_not_believed() -> None:
    cell, facts = TRUE["cpu"]
    assert len([*label_disagreements(cell, {}, {**facts, "relaxed": []})]) >= 5


def test_a_bootstrapped_base_is_called_what_it_is_and_not_what_it_stands_for() -> None:
    """Whoever asks for `docker.io/library/python` trusts its makers, who made nothing of this."""
    recipe = "5f" * 32
    made = replace(
        A_RESOLVED_BASE,
        source=BaseSource.BOOTSTRAP,
        reference="localhost/warpfront/base:debian-12-5f5f5f5f5f5f",
        identity="sha256:" + "1" * 64,
        recipe=recipe,
    )
    labels = labels_of(CPU, base=made)
    assert labels["org.opencontainers.image.base.name"] == made.reference
    assert labels["org.opencontainers.image.base.digest"] == made.identity
    assert labels["dev.warpfront.base-source"] == "bootstrap"
    assert labels["dev.warpfront.base"] == (
        "bootstrapped Debian bookworm with updates and security fixes, by mmdebstrap from a Debian "
        f"mirror; recipe sha256:{recipe}; not {CPU.base.reference}"
    )


def test_a_base_from_its_registry_has_its_own_name() -> None:
    labels = labels_of(CPU)
    assert labels["org.opencontainers.image.base.name"] == CPU.base.reference
    assert labels["dev.warpfront.base"] == CPU.base.reference


def test_what_is_patched_is_said_by_a_label_that_the_image_has_to_bear_out() -> None:
    lock = a_patched_lock(*(a_wheel(pin.name, pin.version) for pin in CPU.stack))
    labels = image_labels(
        CPU,
        project=A_PROJECT,
        lock=lock,
        base=A_RESOLVED_BASE,
        content_hash="ff",
        provenance=Provenance(created="2026-01-01T00:00:00+00:00", revision="abc"),
        uv="0.13.9",
    )
    assert labels["dev.warpfront.patched"] == "lmcache 0.3.9+wf.p12ab34cd"
    assert "dev.warpfront.patched" not in labels_of(CPU)
    facts = {**TRUE["cpu"][1], "relaxed": [], "patched": ["lmcache 0.3.9+wf.p12ab34cd"]}
    assert [*label_disagreements(CPU, labels, facts)] == []
    (gone,) = label_disagreements(CPU, labels, {**facts, "patched": []})
    assert "dev.warpfront.patched says 'lmcache 0.3.9+wf.p12ab34cd'" in gone
    (more,) = label_disagreements(CPU, labels_of(CPU), facts)
    assert "dev.warpfront.patched says None" in more
    why = Why(reference="r", digest="d", labels=labels, signature="none")
    assert "  patched    lmcache 0.3.9+wf.p12ab34cd\n" in why_text(why)


def test_the_image_finds_what_is_patched_by_its_versions() -> None:
    versions = {
        "lmcache": ("0.3.9+wf.p12ab34cd",),
        "torch": ("2.13.0+cpu",),
        "X_y": ("1+a.wf.pffffffff",),
    }
    installed = Installed(versions=versions, requirements={})
    assert patched_versions(installed) == ["lmcache 0.3.9+wf.p12ab34cd", "x-y 1+a.wf.pffffffff"]
