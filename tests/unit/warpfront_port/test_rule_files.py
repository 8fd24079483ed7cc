"""A rule is one file: what the catalogue and the tests read of it is all there, or an error that
names the file.
"""

from __future__ import annotations

import ast

import pytest
from rule_files import ids_said, read_rule_file, read_rule_files

from warpfront_port.scan.catalogue import catalogue, read_rule

RULE = """
title = "t"
engines = ["python"]
phase = 1
consequence = "build"
severity = { rocm = "error" }
message = "m"
why = "w"
fix = "f"
sources = ["s"]
detectors = ["python.kernels"]

[[seen]]
imports = ["x"]

[examples]
hit = "import x"
near = "import y"
gated = ""
"""
PROOF = """
[proof]
refused = "a"
accepted = "b"
"""


def test_the_files_are_the_catalogue_and_all_can_be_tested() -> None:
    assert read_rule_files().keys() == catalogue().keys()


def test_the_rule_that_the_faults_are_sown_into_is_right() -> None:
    rule = read_rule(RULE, "PY066.toml")
    assert (rule.id, rule.seen, rule.detectors) == (
        "PY066",
        ({"imports": ["x"]},),
        ("python.kernels",),
    )
    assert read_rule_file(RULE + PROOF, "PY066.toml")["examples"]["near"] == "import y"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "t"', 'title = "t"\ncolour = 1', "unknown fields: colour"),
        ('title = "t"\n', "", "missing or unknown fields: title"),
        ('title = "t"', "title = t", "is no TOML"),
        ('"python"', '"fortran"', "engine"),
        ('"build"', '"doom"', "consequence that is none"),
        ('"error"', '"fatal"', "severity that is none: rocm = 'fatal'"),
        ("rocm", "abacus", "severity that is none: abacus"),
        ("imports", "smells", "unknown: smells"),
        ('detectors = ["python.kernels"]\n\n[[seen]]\nimports = ["x"]\n', "", "neither"),
    ],
)
def test_a_wrong_record_is_refused_with_its_files_name(old: str, new: str, said: str) -> None:
    assert old in RULE
    with pytest.raises(ValueError, match=rf"data/rules/PY066\.toml .*{said}"):
        read_rule_file(RULE.replace(old, new), "PY066.toml")


@pytest.mark.parametrize("name", ["py007.toml", "PY7.toml", "PY0660.toml", "graphs.toml"])
def test_a_file_that_no_id_names_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"data/rules/{name} has no rule's id for its name"):
        read_rule_file(RULE, name)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("near =", "miss =", "examples of an unknown kind: miss"),
        ('near = "import y"\n', "", "no example of this kind: near"),
        ("[examples]", "[samples]", "missing or unknown fields: samples"),
        ('hit = "import x"\nnear = "import y"\ngated = ""', 'elsewhere = "no.py"', "in no.py"),
        ('"python.kernels"', '"python.nothing"', "is seen by .*python.kernels"),
        ('"python.kernels"', '"python.kernels", "python.nothing"', "not seen by .*python.nothing"),
        ('"python.kernels"', '"python.kernels", "python.devices"', "not seen by .*python.devices"),
        ('detectors = ["python.kernels"]\n', "", "is seen by .*python.kernels"),
        ("accepted", "excepted", "proof with missing or unknown fields: accepted, excepted"),
        ('refused = "a"', 'at_run_time = "it stops"', "missing or unknown fields: seen"),
        ('refused = "a"', 'refused = "a"\nseen = "c"', "missing or unknown fields: seen"),
    ],
)
def test_what_tests_cannot_use_is_refused_with_the_files_name(
    old: str, new: str, said: str
) -> None:
    assert old in RULE + PROOF
    with pytest.raises(ValueError, match=rf"data/rules/PY066\.toml .*{said}"):
        read_rule_file((RULE + PROOF).replace(old, new), "PY066.toml")


@pytest.mark.parametrize(
    ("code", "ids"),
    [
        ('yield Seen(rule="PY001")', ["PY001"]),
        ('ROWS = (("word", "PY001"), {"a": "PY002"})', ["PY001", "PY002"]),
        ('x = "PY001" if rule == "PY002" else ""', ["PY001"]),
        ('LOUD = frozenset({"PY001"})\n"about PY002"', []),
        ('if rule in ("PY001", "PY002"):\n    pass', []),
    ],
)
def test_code_that_gives_an_id_is_told_from_code_that_asks_for_one(
    code: str, ids: list[str]
) -> None:
    assert list(ids_said(ast.parse(code))) == ids
