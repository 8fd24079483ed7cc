"""The suite's results as docs/results/guard-suite.md and guard-suite.json show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from adversary.cases import TOOLS, Case, read_parts
from adversary.suite import STAND_INS, of_a_real_torch, representatives

BEGIN = "<!-- guard-suite: begin, written by tools/guard-table -->"
END = "<!-- guard-suite: end -->"
_IMAGES = ("cpu", "cuda", "rocm")
_WHY = (
    "● = every run of the tests tries it, in the image of stand-ins where that has it and else in "
    "the CPU image: the first that a part holds (below), of its way with one of that way's "
    "outcomes, or of ways alike with a tool; the others say the same with other words or are long "
    "in the making, and are run by `scripts/test --all`. Of what a part holds (below) always the "
    "first case, by `--all` each."
)
_NOT_HERE = "-"


def with_table(page: str, table: str) -> str:
    """`page` with what stands between the markers replaced. Raises `ValueError` without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{before}{BEGIN}\n\n{table}\n{END}{after}"


def suite_table(document: Mapping[str, Any], cases: Sequence[Case]) -> str:
    """Images, tools, counts, the table of cases, and what each part of the guard alone holds."""
    found = {(one["case"], one["image"], one["tool"]): one for one in document["results"]}
    always = {case.id for case, _ in representatives(cases, STAND_INS, read_parts())}
    real = representatives(cases, "cpu", read_parts())
    always |= {case.id for case, _ in of_a_real_torch(real, "cpu")}
    lines = [*_head(document), "", _WHY, ""]
    lines += ["| case | CPU | CUDA | ROCm |", "|---|---|---|---|"]
    for how in dict.fromkeys(case.how for case in cases):
        lines.append(f"| **{how}** | | | |")
        for case in cases:
            if case.how == how:
                cells = [_cell(case, image, found, document["tools"]) for image in _IMAGES]
                note = f" ({case.note})" if case.note else ""
                mark = "● " if case.id in always else ""
                lines.append(f"| {mark}{_escaped(case.title + note)} | {' | '.join(cells)} |")
    if document["parts"]:
        lines += ["", *_parts(document["parts"])]
    return "\n".join(lines) + "\n"


def _head(document: Mapping[str, Any]) -> list[str]:
    tools = document["tools"]
    pips = f"pip {tools['pip-old']} (as shipped with Python 3.11), pip {tools['pip']}"
    lines = [
        f"{pips}, uv {tools['uv']}. `tools/guard-table` writes this.",
        "",
        "| image | runs | intact | refused | by import | by verify alone | relaxed | silent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for image in _IMAGES:
        if image in document["images"]:
            about = document["images"][image]
            kind = "" if about["real"] else ", a stand-in"
            counts = counted(one for one in document["results"] if one["image"] == image)
            numbers = " | ".join(str(counts[name]) for name in _COUNTED)
            lines.append(f"| {image}: torch {about['torch']}{kind} | {numbers} |")
    return [*lines, "", *_when(document["results"])]


def _when(results: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """How many rows are of which guard and day."""
    counts = Counter((one["guard"] or "before", one["day"], one["image"]) for one in results)
    yield "| guard (a hash of its code; 4f77bb572de8: of its files) | day | image | runs |"
    yield "|---|---|---|---|"
    for (guard, day, image), count in sorted(counts.items(), key=lambda one: one[0][1:]):
        yield f"| {guard} | {day} | {image} | {count} |"


_COUNTED = ("runs", "intact", "refused", "import", "verify", "relaxed", "silent")


def counted(results: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many runs came out how; `silent` holds everything that must not be."""
    counts = dict.fromkeys(_COUNTED, 0)
    for one in results:
        counts["runs"] += 1
        if one["outcome"] == "detected":
            counts["import" if "import" in one["by"] else "verify"] += 1
        elif one["outcome"] in ("intact", "refused", "relaxed"):
            counts[one["outcome"]] += 1
        else:
            counts["silent"] += 1
    return counts


def _cell(
    case: Case,
    image: str,
    found: Mapping[tuple[str, str, str], Mapping[str, Any]],
    versions: Mapping[str, str],
) -> str:
    """One word where all tools agree; else each tool's."""
    words = {
        tool: _word(found[case.id, image, tool])
        for tool in TOOLS
        if (case.id, image, tool) in found
    }
    if not words:
        return _NOT_HERE
    by_word: dict[str, list[str]] = {}
    for tool, word in words.items():
        name = "uv" if tool == "uv" else f"pip {versions[tool]}"
        by_word.setdefault(word, []).append(name)
    if len(by_word) == 1:
        return next(iter(by_word))
    return "; ".join(f"{', '.join(names)}: {word}" for word, names in by_word.items())


def _word(result: Mapping[str, Any]) -> str:
    by = " and ".join(result["by"])
    if result["outcome"] == "detected":
        return f"detected by {by}"
    return str(result["outcome"])


def _parts(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """What comes out worse on an image from which one part was taken."""
    lines = ["| without | what it alone holds: with it, without it |", "|---|---|"]
    for part in parts:
        held = [
            f"{one['case']} ({one['tool']}): {one['with']}, **{one['without']}**"
            for one in part["held"]
        ]
        text = "<br>".join(held) or part["note"]
        lines.append(f"| {_escaped(part['title'])} | {_escaped(text)} |")
    return lines


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
