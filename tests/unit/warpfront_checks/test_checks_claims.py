from __future__ import annotations

import json
from pathlib import Path

import pytest

from warpfront.cli.sessions import claims_for_target
from warpfront_checks.claims import (
    Claims,
    ClaimsError,
    claims_from,
    read_claims,
)

CLAIMS = Claims(
    cell="torch-cu130",
    target="sm_90",
    vendor="nvidia",
    device="cuda",
    python="3.11",
    machine="x86_64",
    toolkit=("cuda", "13.0"),
    versions={"torch": "2.14.1"},
    stack=("torch",),
    archs=("sm_90", "compute_90"),
)


def test_claims_come_back_from_their_file_unchanged(tmp_path: Path) -> None:
    (tmp_path / "claims.json").write_text(json.dumps(CLAIMS.document()))
    assert read_claims(tmp_path / "claims.json") == CLAIMS


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"schema": 2}, "schema is 2"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"image": "yes"}, "image must be"),
        ({"python": ""}, "python must be a non-empty string"),
        ({"versions": {"torch": 2}}, "versions must be a string"),
        ({"archs": "sm_90"}, "archs must be a list"),
        ({"toolkit": {"name": "cuda"}}, "version must be"),
        ({"tourch": "2.14.1"}, "unknown field 'tourch'"),
    ],
)
def test_a_claim_that_could_not_be_checked_is_refused(
    change: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ClaimsError, match=complaint):
        claims_from({**CLAIMS.document(), **change})


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_file_that_is_no_claims_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "claims.json").write_text(text)
    with pytest.raises(ClaimsError, match=r"claims\.json: "):
        read_claims(tmp_path / "claims.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClaimsError, match=r"none\.json: No such file"):
        read_claims(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("target", "vendor", "device"),
    [
        ("sm_90", "nvidia", "cuda"),
        ("gfx90a", "amd", "cuda"),
        ("gaudi3", "gaudi", "hpu"),
        ("cpu", "cpu", "cpu"),
    ],
)
def test_a_target_says_vendor_and_device(target: str, vendor: str, device: str) -> None:
    claims = claims_for_target(target)
    assert (claims.vendor, claims.device, claims.versions) == (vendor, device, {})


@pytest.mark.parametrize("target", ["", "../etc", "sm90", "h100", "sm_90 ", "gfx"])
def test_a_target_of_no_known_form_is_refused(target: str) -> None:
    with pytest.raises(ClaimsError, match="not of the form of any vendor"):
        claims_for_target(target)
