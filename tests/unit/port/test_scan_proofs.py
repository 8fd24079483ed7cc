"""What the scanner calls an error in C++ and CUDA is one: a compiler refuses it, or a reason says
what happens. `tests/integration/test_compile.py` asks the compilers.
"""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from warpfront.port.scan.catalogue import catalogue
from warpfront.port.scan.engines import Scope, scan_source
from warpfront.port.scan.findings import Context, Severity, SourceText
from warpfront.port.scan.targets import read_target

MI300X = read_target("gfx942")
PROOFS: dict[str, dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[2] / "compile" / "rule_proofs.toml").read_text(encoding="utf-8")
)


def errors(text: str, *, untranslated: bool = False) -> set[str]:
    name = "proof.cu" if untranslated else "proof.hip"
    source = SourceText(path=PurePosixPath(name), text=text)
    context = Context(untranslated=untranslated)
    scope = Scope(target=MI300X, rules=catalogue(), context=context)
    found = scan_source(source, scope).findings
    return {one.rule for one in found if one.severity is Severity.ERROR}


def test_every_rule_that_says_error_has_a_proof() -> None:
    ours = {
        rule.id
        for rule in catalogue().values()
        if "cuda" in rule.engines and rule.severity_for(MI300X) is Severity.ERROR
    }
    assert ours == set(PROOFS)
    for proof in PROOFS.values():
        assert ("refused" in proof) != (proof.get("at_run_time", "") != "" and "seen" in proof)


@pytest.mark.parametrize("rule", PROOFS)
def test_what_the_compiler_refuses_is_an_error_and_what_it_takes_is_none(rule: str) -> None:
    proof = PROOFS[rule]
    untranslated = proof.get("untranslated", False)
    assert rule in errors(proof.get("refused") or proof["seen"], untranslated=untranslated)
    assert errors(proof["accepted"], untranslated=untranslated) == set()
