"""What the scanner calls an error in C++ and CUDA is one: a compiler refuses it, or a reason says
what happens. `tests/integration/test_compile.py` asks the compilers.
"""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from rule_files import read_proofs

from warpfront_port.scan.catalogue import catalogue
from warpfront_port.scan.engines import Scope, scan_source
from warpfront_port.scan.findings import Context, Severity, SourceText
from warpfront_port.scan.targets import read_target

MI300X = [read_target("gfx942", toolkit) for toolkit in ("", "6.4", "7.2")]
PROOFS = read_proofs()


def errors(text: str) -> set[str]:
    source = SourceText(path=PurePosixPath("proof.hip"), text=text)
    context = Context()
    scopes = [Scope(target=one, context=context) for one in MI300X]
    found = [one for scope in scopes for one in scan_source(source, scope).findings]
    return {one.rule for one in found if one.severity is Severity.ERROR}


def test_every_rule_that_says_error_has_a_proof() -> None:
    ours = {
        rule.id
        for rule in catalogue().values()
        if "cuda" in rule.engines and Severity.ERROR in map(rule.severity_for, MI300X)
    }
    assert ours == set(PROOFS)


@pytest.mark.parametrize("rule", PROOFS)
def test_what_the_compiler_refuses_is_an_error_and_what_it_takes_is_none(rule: str) -> None:
    proof = PROOFS[rule]
    assert rule in errors(proof.get("refused") or proof["seen"])
    assert errors(proof["accepted"]) == set()
