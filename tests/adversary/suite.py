"""The whole suite on one image, and its results as one document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from adversary.cases import Case, Part
from adversary.judge import Verdict, is_worse
from adversary.runner import Arena, Result

SCHEMA = 1
# What people have: the oldest pip is for `scripts/guard-table` and the whole table.
NEWEST = ("pip", "uv")


def pairs(cases: Iterable[Case], image: str, only: Sequence[str] = ()) -> list[tuple[Case, str]]:
    """Every case of an image with each of its tools; `only` names cases or `case/tool`."""
    return [
        (case, tool)
        for case in cases
        if image in case.images
        for tool in case.commands
        if not only or case.id in only or f"{case.id}/{tool}" in only
    ]


def representatives(cases: Iterable[Case], image: str) -> list[tuple[Case, str]]:
    """Of each way, and each outcome that it may have on an image, the first case: with pip and uv
    in turn where either would do. What is left out says the same with other words.
    """
    firsts: dict[tuple[str, str], list[tuple[Case, str]]] = {}
    for case, tool in pairs(cases, image):
        of_way = firsts.setdefault((case.how, case.expected(image, tool)), [])
        if tool in NEWEST and (not of_way or of_way[0][0] is case):
            of_way.append((case, tool))
    chosen: list[tuple[Case, str]] = []
    for of_way in filter(None, firsts.values()):
        tools = [tool for _, tool in chosen]
        chosen.append(min(of_way, key=lambda pair: tools.count(pair[1])))
    return chosen


def held_by(part: Part, arena: Arena, cases: Sequence[Case]) -> list[dict[str, str]]:
    """What each case that a part is said to hold comes to with it and without it.

    `worse` is "yes" where less is left without the part.
    """
    wanted = pairs(cases, arena.stack.kind, part.holds) if part.holds else []
    held = []
    for case, tool in wanted:
        whole = arena.run(case, tool)
        without = arena.run(case, tool, part)
        held.append(
            {
                "case": case.id,
                "tool": tool,
                "with": _words(whole.verdict),
                "without": _words(without.verdict),
                "worse": "yes" if is_worse(without.verdict, whole.verdict) else "no",
                "said": without.verdict.happened or without.verdict.said[-600:],
            }
        )
    return held


def _words(verdict: Verdict) -> str:
    by = f" by {' and '.join(verdict.by)}" if verdict.by else ""
    return f"{verdict.outcome}{by}"


def entry(result: Result) -> dict[str, object]:
    """A result as the document keeps it."""
    verdict = result.verdict
    return {
        "case": result.case,
        "image": result.image,
        "tool": result.tool,
        "outcome": verdict.outcome,
        "by": list(verdict.by),
        "happened": verdict.happened,
        "exit_code": result.measured.get("exit_code"),
        "seconds": result.seconds,
        "problem": result.problem,
    }


def document(
    before: Mapping[str, Any],
    *,
    tools: Mapping[str, str],
    images: Mapping[str, Mapping[str, object]],
    results: Sequence[Mapping[str, object]],
    parts: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """`before` with these results in place of its own for the same case, image and tool."""
    new = {(one["case"], one["image"], one["tool"]): one for one in results}
    old = {(one["case"], one["image"], one["tool"]): one for one in before.get("results", [])}
    merged = {**old, **new}
    named = {one["id"]: one for one in [*before.get("parts", []), *parts]}
    return {
        "schema": SCHEMA,
        "tools": dict(tools),
        "images": {**before.get("images", {}), **images},
        "results": [merged[key] for key in sorted(merged)],
        "parts": list(named.values()),
    }


def part_entry(part: Part, held: Sequence[Mapping[str, str]]) -> dict[str, object]:
    kept = [{key: one[key] for key in ("case", "tool", "with", "without")} for one in held]
    return {"id": part.id, "title": part.title, "note": part.note, "held": kept}
