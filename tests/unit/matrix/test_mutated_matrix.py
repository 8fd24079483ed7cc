"""matrix.yaml with a line or a value changed as people change them: it is read, or each problem has
its line, a remedy, and no word of the libraries that read it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from warpfront.cli.program import run
from warpfront.errors import MatrixError, Problem
from warpfront.matrix.compat import packaged
from warpfront.matrix.reading import read_matrix
from warpfront.matrix.scaffold import new_project

ROOT = Path(__file__).parents[3]
MATRICES = ("repository", "init", "constructs")
# What pydantic and PyYAML call things, or say of them.
FOREIGN = re.compile(
    r"[Ii]nput should|[Ii]nput is|[Ff]ield required|should (?:be|have|match)|[Ee]xtra inputs"
    r"|validation error|pydantic|dataclass|tuple|_type\b|unexpected keyword|discriminat|\btagged\b"
    r"|yaml\.org|PyYAML|while (?:parsing|scanning)|could not (?:find|determine)|did not find"
    r"|<block|<stream|block (?:mapping|sequence|collection|end)|flow (?:mapping|sequence)"
    r"|mapping values|\bscanner\b|\bparser\b|\btoken\b|simple key|\banchor\b.*found|cannot start"
    r"|literal_error|errors?\.pydantic|Traceback|NoneType|<class"
)
# Constructs that neither of the two others has.
CONSTRUCTS = """
indexes:
  mine:
    url: https://pypi.me.example/simple
    packages: [acme-*, my-package]
builders:
  far:
    host: ssh://me@host
    slots: 2
    room_gb: 50
    cache: ghcr.io/me/cache
maintenance:
  base_max_age_days: 30
  allow_vulnerabilities:
    - id: CVE-2026-12345
      until: "2027-01-31"
      reason: not reachable
runners:
  gpu:
    labels: [self-hosted, h100]
    trust: self-hosted
    builds: true
    vendor: cpu
    targets: x86_64
    count: 2
    bench: tiny
    max_slower: 5%
ci:
  unchecked: red
  notify: [issue]
  queue_hours: 3
release:
  nightly:
    tags: ["{torch}-{toolkit}-{date}"]
    aliases:
      - tag: "{torch}-nightly"
        where: {vendor: cpu}
    targets: any
    max_age_hours: 48
    allow: [unavailable]
policy: none
strict: false
allow_builds: [flash-attn]
include:
  - where: {vendor: cpu}
    set: {python: "3.11"}
"""
VALUES = (
    *("", "3.10", "13.0", "true", "yes", "null", "12", "1e3", "2026-11-28", "[a]", "[]", "{a: b}"),
    *("{}", "'open", '"open', "@x", "*x", "&x y", "a: b", "- x", "|", ">", "!!set {}", "%x", "`x`"),
    *("MI300X", "H100", "[sm_90, H100]", "a b, c", "..", "x" * 300, "<<", "[", "}", "\t", "# x"),
)
KEY = re.compile(r"(?P<indent>[ -]*)(?P<key>[A-Za-z_0-9-]+):(?P<value>.*)")


@cache
def lines_of(name: str) -> tuple[str, ...]:
    """Return the lines of a matrix that is right."""
    if name == "repository":
        text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    else:
        edit = new_project(
            Path("/nowhere"),
            name="x",
            vendors="cpu==2.13.0,nvidia:13.0,amd",
            base="debian-12",
            registry="ghcr.io/x",
        )
        text = edit.files["matrix.yaml"] + (CONSTRUCTS if name == "constructs" else "")
    return tuple(text.splitlines())


def told(text: str) -> tuple[str, ...]:
    """Return the problems of a matrix, each checked: its line, its words, its remedy."""
    problems: tuple[Problem, ...] = ()
    try:
        read_matrix(text, path="matrix.yaml", compat=packaged())
    except MatrixError as error:
        problems = error.problems
    for problem in problems:
        assert problem.path == "matrix.yaml"
        assert 1 <= problem.line <= len(text.splitlines()) + 1, problem
        assert problem.hint, problem
        assert not FOREIGN.search(f"{problem.message} {problem.hint}"), problem
    return tuple(f"{problem} | {problem.hint}" for problem in problems)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw a right matrix with one or two lines changed."""
    lines = list(lines_of(draw(st.sampled_from(MATRICES))))
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, len(lines) - 1))
        line = lines[place]
        kind = draw(st.sampled_from(("drop", "twice", "indent", "tab", "value", "key", "colon")))
        match = KEY.match(line)
        if kind == "drop":
            del lines[place]
        elif kind == "twice":
            lines.insert(place, line)
        elif kind == "indent":
            by = draw(st.sampled_from((-2, -1, 1, 2, 4)))
            lines[place] = " " * by + line if by > 0 else line[-by:]
        elif kind == "tab":
            spot = draw(st.integers(0, len(line)))
            lines[place] = line[:spot] + "\t" + line[spot:]
        elif kind == "value" and match:
            value = draw(st.sampled_from(VALUES))
            lines[place] = f"{match['indent']}{match['key']}: {value}"
        elif kind == "key" and match:
            key = draw(st.sampled_from((match["key"][1:], match["key"].title(), "3.10", "on", "?")))
            lines[place] = f"{match['indent']}{key}:{match['value']}"
        elif kind == "colon":
            lines[place] = line.replace(":", draw(st.sampled_from(("", " :", "::", "=", ":"))), 1)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", MATRICES)
def test_a_right_matrix_has_no_problem(name: str) -> None:
    assert told("\n".join(lines_of(name)) + "\n") == ()


@given(mutated())
def test_a_changed_matrix_is_read_or_told_in_its_own_words(text: str) -> None:
    told(text)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "  name: x",
            "\tname: x",
            ":8: a tab at the start of the line | indent with spaces: `  name: x`",
        ),
        (
            "  name: x",
            "   name: x",
            (
                ":9: the indentation of `source: https://github.com/my/images` fits no line above"
                " | "
                "indent the keys of one mapping alike: `   source: https://github.com/my/images`"
            ),
        ),
        (
            "    packages: [numpy, pip]",
            "    packages: numpy pip",
            ":28: `packages` is no list | write a list: packages: [numpy, pip]",
        ),
        (
            "    title: PyTorch runtime",
            "    titel: x",
            ":27: unknown key `titel` | did you mean `title`?",
        ),
        (
            "    targets: x86_64",
            "    targets: MI300X",
            ": 'MI300X' is not a target | write `gfx942`",
        ),
        ("    targets: x86_64", "    targets: [H100]", ": 'H100' is not a target | write `sm_90`"),
        (
            "    template: torch",
            "    template: torch\n    template: torch",
            ":27: duplicate key `template` (first on line 26) | keep one of them",
        ),
        ("schema: 1", "schema: 0", ":5: `schema` cannot be `0` | write one of: 1"),
        ("project:\n", "projekt:\n", ": unknown key `projekt` | did you mean `project`?"),
        (
            "    template: torch\n",
            "",
            ": `template` is missing in images.torch | write `template: ...`",
        ),
    ],
)
def test_a_usual_mistake_has_its_line_and_the_line_to_write(
    right: str, wrong: str, said: str
) -> None:
    text = "\n".join(lines_of("init")) + "\n"
    assert right in text
    problems = told(text.replace(right, wrong, 1))
    where, _, hint = said.partition(" | ")
    assert any(where in one and hint in one for one in problems), problems


def test_a_command_ends_with_2_and_the_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "matrix.yaml").write_text("schema: 1\n\tproject: x\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert run(["plan"]) == 2
    assert capsys.readouterr().err == (
        "error: matrix.yaml:2: a tab at the start of the line\n"
        "    hint: indent with spaces: `  project: x`\n"
    )
