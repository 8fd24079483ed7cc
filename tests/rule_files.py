"""The files of the scanner's rules as tests read them: the record, and what stands below it.

`[examples]`: `hit` has what the rule is about, `near` looks like it and has not, `gated` has it
where the target does not come. A gate does not touch what is structural: there the third is
suppressed with a reason, or optional. `path` is the file's name where that matters, `target` whom
the scan is for (gfx942 else). `near_path` and the
like are of one example alone. A rule that no one file can show names the test that shows it,
`elsewhere`.

`[proof]`: why a rule of the CUDA engine may say error for an AMD device. `refused` does not compile
there with hipcc, but for the targets of `accepted_on` and before the ROCm of `refused_from`, and
`accepted`, which does the same, does; or `at_run_time` says what happens to `seen`, where a
compiler says nothing.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from warpfront_port.scan.findings import Consequence, Severity

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "src" / "warpfront_port" / "data" / "rules"
SCAN = ROOT / "src" / "warpfront_port" / "scan"
KINDS = ("hit", "near", "gated")
_OF_EACH = {f"{kind}_{word}" for kind in KINDS for word in ("path", "target")}
_OF_ALL = {"path", "target"}
_EXAMPLES: Final = frozenset({*KINDS, *_OF_EACH, *_OF_ALL})
_REFUSED: Final = frozenset({"refused", "accepted", "accepted_on", "refused_from"})
_AT_RUN_TIME: Final = frozenset({"at_run_time", "seen", "accepted"})
_ID = re.compile(r"[A-Z]{2}\d{3}")
_NEEDED: Final = frozenset(
    {"title", "engines", "phase", "consequence", "severity", "message", "why", "fix", "sources"}
)
_FLAGS: Final = frozenset(
    {"structural", "of_amd", "of_a_package", "unless_named", "cause_by_name", "once_a_file"}
    | {"seen", "detectors"}
)
_SEEN: Final = frozenset(
    {"imports", "dotted", "environment", "distributions", "names"}
    | {"twinless", "families", "headers", "once", "once_a_file", "then", "shift"}
    | {"open_shift", "pattern", "words", "requires", "within", "unless"}
    | {"calls", "argument", "shown", "settings", "value", "library", "own", "programs", "options"}
    | {"packages", "conda_packages", "images", "indexes", "needs"}
)
_ENGINES: Final = frozenset({"python", "cuda", "structured", "scanner"})
_CLASSES: Final = frozenset(
    {"rocm", "rocm5", "rocm6", "rocm7", "wave64", "wave32", "gfx9", "gfx10", "gfx11", "gfx12"}
    | {"hpu", "cpu"}
)
# They mend what others saw.
_NO_DETECTORS = frozenset({"fix", "python_fixes"})


@cache
def read_rule_files() -> Mapping[str, Mapping[str, Any]]:
    """Everything that the files say, by rule. Raises `ValueError` for what tests cannot use."""
    files = sorted(RULES.glob("*.toml"))
    return {
        file.stem: read_rule_file(file.read_text(encoding="utf-8"), file.name) for file in files
    }


def read_examples(*, cuda: bool) -> Mapping[str, Mapping[str, Any]]:
    """The examples of the rules about C++ and CUDA, or of all others, by rule."""
    return {
        rule: document["examples"]
        for rule, document in read_rule_files().items()
        if ("cuda" in document["engines"]) is cuda and "elsewhere" not in document["examples"]
    }


def read_proofs() -> Mapping[str, Mapping[str, Any]]:
    """What compilers, or a device, say of examples, for the rules that need it."""
    files = read_rule_files().items()
    return {rule: document["proof"] for rule, document in files if "proof" in document}


def read_rule_file(text: str, name: str) -> Mapping[str, Any]:
    """One rule's file, whole. Raises `ValueError`, with the file's name, for a record, examples or
    a proof with unknown or missing fields, and for `detectors` that are not the modules that see
    the rule.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"data/rules/{name} is no TOML: {error}") from error
    for problem in (*_problems_of_rule(document, name), *_problems(document, Path(name).stem)):
        raise ValueError(f"data/rules/{name} {problem}")
    return document


def _problems_of_rule(document: Mapping[str, Any], name: str) -> Iterator[str]:
    if not (name.endswith(".toml") and _ID.fullmatch(name.removesuffix(".toml"))):
        yield "has no rule's id for its name, like PY019.toml"
    record = document.keys() - {"examples", "proof"}
    if odd := sorted((_NEEDED - record) | (record - _NEEDED - _FLAGS)):
        yield f"has missing or unknown fields: {', '.join(odd)}"
        return
    if not document.get("seen") and not document.get("detectors"):
        yield "has neither names (seen) nor code (detectors) to be found by"
    if not set(document["engines"]) <= _ENGINES:
        yield f"names an engine that is none: {document['engines']}"
    if document["consequence"] not in frozenset(Consequence):
        yield f"has a consequence that is none: {document['consequence']!r}"
    for target, word in document["severity"].items():
        valid = target in _CLASSES or target.startswith(("gfx", "gaudi"))
        if not valid or word not in frozenset(Severity):
            yield f"has a severity that is none: {target} = {word!r}"
    if odd := sorted({key for row in document.get("seen", ()) for key in row} - _SEEN):
        yield f"sees by what is unknown: {', '.join(odd)}"


def _problems(document: Mapping[str, Any], rule: str) -> Iterator[str]:
    examples = document.get("examples", {})
    if examples.keys() != {"elsewhere"}:
        if odd := sorted(examples.keys() - _EXAMPLES):
            yield f"has examples of an unknown kind: {', '.join(odd)}"
        if missing := [kind for kind in KINDS if kind not in examples]:
            yield f"has no example of this kind: {', '.join(missing)}"
    elif not (test := ROOT / examples["elsewhere"]).is_file() or rule not in test.read_text():
        yield f"has its examples in {examples['elsewhere']}, which does not name it"
    if "proof" in document:
        yield from _problems_of_proof(document["proof"])
    named, found = set(document.get("detectors", ())), detectors().get(rule, set())
    for module in sorted(named ^ found):
        verb = "is seen by" if module in found else "is not seen by"
        yield f"{verb} warpfront_port.scan.{module}: correct its detectors"


def _problems_of_proof(proof: Mapping[str, Any]) -> Iterator[str]:
    known, needed = (_REFUSED, {"refused", "accepted"})
    if "at_run_time" in proof:
        known, needed = (_AT_RUN_TIME, {"at_run_time", "seen", "accepted"})
    if odd := sorted((proof.keys() - known) | (needed - proof.keys())):
        yield f"has a proof with missing or unknown fields: {', '.join(odd)}"


@cache
def detectors() -> Mapping[str, set[str]]:
    """The modules of the scan and its compiler whose code says the id of a rule, by rule."""
    found: dict[str, set[str]] = {}
    for file in (*sorted(SCAN.rglob("*.py")), *(SCAN.parent / "compile").glob("syntax_pass.py")):
        base = SCAN if file.is_relative_to(SCAN) else SCAN.parent
        module = ".".join(file.relative_to(base).with_suffix("").parts)
        if module not in _NO_DETECTORS:
            text = file.read_text(encoding="utf-8")
            for rule in ids_said(ast.parse(text)) if _ID.search(text) else ():
                found.setdefault(rule, set()).add(module)
    return found


def ids_said(node: ast.AST) -> Iterator[str]:
    """Ids of rules that code gives away. What is compared, or stands in a set, was seen before."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if _ID.fullmatch(node.value):
            yield node.value
    elif not isinstance(node, ast.Compare | ast.Set):
        for below in ast.iter_child_nodes(node):
            yield from ids_said(below)
