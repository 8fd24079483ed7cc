"""Runtime policies: who they are for, what they refuse, and that an image says what is set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import A_PROJECT, A_RESOLVED_BASE, a_lock

from warpfront.errors import MatrixError
from warpfront.images.labels import POLICIES, image_labels
from warpfront.matrix.cell import Cell, Toolkit
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import Matrix, read_matrix
from warpfront.matrix.runtime_policies import packaged_policies, policies_of, refusals
from warpfront.system.tree_files import Provenance
from warpfront.verify.image_claims import image_claims
from warpfront_checks.claims import claims_from
from warpfront_checks.guard.policy import Policy

ROOT = Path(__file__).parents[3]
LAZY = "PT_HPU_LAZY_MODE"
BOTH = "max_split_size_mb:128,expandable_segments:True"


def matrix(more: str = "", **environment: str) -> Matrix:
    """This project's own, with `more` at its end, and an environment for its torch image."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    said = "".join(f"\n      {name}: {value}" for name, value in environment.items())
    if said:
        text = text.replace("    title: PyTorch runtime", f"    title: t\n    environment:{said}")
    return read_matrix(text + more, path="matrix.yaml", compat=packaged())


def of_vendor(found: Matrix, vendor: str) -> Cell:
    return next(cell for cell in found.cells if cell.vendor == vendor and cell.parent is None)


def labels(cell: Cell) -> dict[str, str]:
    made = image_labels(
        cell,
        project=A_PROJECT,
        lock=a_lock(cell),
        base=A_RESOLVED_BASE,
        content_hash="c",
        provenance=Provenance(revision="r", created="c"),
        uv="1",
    )
    return dict(made)


def test_every_policy_is_dated_sourced_and_has_an_effect_and_none_is_nvidias() -> None:
    for one in packaged_policies():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", one.dated)
        assert one.source.startswith("https://")
        assert one.effect
        assert one.vendor != "nvidia"
        if one.level == "forbid":
            re.compile(one.value)


def test_a_policy_holds_for_its_vendor_arch_and_versions_only() -> None:
    rocm = Toolkit(name="rocm", version="7.2")
    names = {one.name for one in policies_of("amd", rocm, ("gfx90a", "gfx942"), "2.12.1")}
    assert "TORCHINDUCTOR_CUDAGRAPHS" in names
    for targets, version in ((("gfx1100",), "7.2"), (("gfx942",), "7.14")):
        toolkit = Toolkit(name="rocm", version=version)
        found = {one.name for one in policies_of("amd", toolkit, targets, "2.12.1")}
        assert "TORCHINDUCTOR_CUDAGRAPHS" not in found
        assert "PYTORCH_ALLOC_CONF" in found
    old = Toolkit(name="synapseai", version="1.17.0")
    assert LAZY not in {one.name for one in policies_of("gaudi", old, ("gaudi2",), "2.3.0")}
    assert policies_of("nvidia", Toolkit(name="cuda", version="13.0"), ("sm_90",), "2.14.1") == ()


def test_what_is_set_is_in_the_environment_the_label_and_the_claims() -> None:
    cell = of_vendor(matrix(), "gaudi")
    assert cell.environment[LAZY] == "0"
    assert labels(cell)[POLICIES] == f"{LAZY}=0"
    policy = Policy(cell=cell.id, title=cell.title)
    claims = image_claims(cell, a_lock(cell), policy, target="gaudi3")
    assert {one["name"]: one["level"] for one in claims.policies}[LAZY] == "set"
    assert claims_from(claims.document()) == claims


def test_a_users_own_word_goes_first_and_none_turns_all_off() -> None:
    own = of_vendor(matrix(**{LAZY: '"1"'}), "gaudi")
    assert own.environment[LAZY] == "1"
    assert [one for one in own.policies if one.level == "set"] == []
    assert POLICIES not in labels(own)
    off = of_vendor(matrix("\npolicy: none\n"), "gaudi")
    assert (off.policies, dict(off.environment)) == ((), {})
    some = of_vendor(matrix(f"\npolicy: [{LAZY}]\n"), "gaudi")
    assert [one.name for one in some.policies] == [LAZY]


def test_nvidias_images_are_what_they_were() -> None:
    with_, without = matrix(), matrix("\npolicy: none\n")
    for cell, plain in zip(with_.cells, without.cells, strict=True):
        if cell.vendor in {"nvidia", "cpu", "intel"}:
            assert cell == plain


def test_an_environment_that_is_known_to_be_wrong_is_refused_where_it_is() -> None:
    with pytest.raises(MatrixError, match="reads back as zeros") as refused:
        matrix(PYTORCH_ALLOC_CONF=BOTH)
    assert {problem.line for problem in refused.value.problems if "zeros" in problem.message}
    assert matrix("\npolicy: none\n", PYTORCH_ALLOC_CONF=BOTH).cells
    own = of_vendor(matrix(), "amd").policies
    assert refusals(own, "PYTORCH_ALLOC_CONF", "expandable_segments:True") == ()


def test_a_policy_that_nobody_knows_is_refused() -> None:
    with pytest.raises(MatrixError, match="no policy `PT_HPU`"):
        matrix("\npolicy: [PT_HPU]\n")
