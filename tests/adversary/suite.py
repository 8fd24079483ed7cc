"""The whole suite on one image, and its results as one document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adversary.cases import Case, Part
from adversary.judge import Verdict, is_worse
from adversary.runner import Arena, Result

SCHEMA = 1
# The image whose torch is a stand-in: what overwrites it moves no gigabyte.
STAND_INS = "rocm"
# What people have: the oldest pip is for `tools/guard-table` and the whole table.
NEWEST = ("pip", "uv")
# What takes a minute to set up: what it leaves is found as what others overwrite, what it asks pip
# for is refused as what a file of requirements asks for. An older pip is tried whole by --all.
DEAR = ("other installer", "tool")
# Ways that one line of the guard answers: constraints, a look at what changed, or nothing at all.
ALIKE: Mapping[str, tuple[str, ...]] = {
    "asked for": (
        "floor",
        "ceiling",
        "exclusion",
        "exact pin",
        "string equality",
        "extra",
        "editable",
        "requirements",
        "other index",
        "going back",
    ),
    "beside": ("companion", "triton", "nvidia"),
    "overwritten": ("same version", "bundled files", "by hand", "removal"),
    "untouched": ("satisfied", "upgrade", "tool", "other command", "advice"),
}


def pairs(cases: Iterable[Case], image: str, only: Sequence[str] = ()) -> list[tuple[Case, str]]:
    """Every case of an image with each of its tools; `only` names cases or `case/tool`."""
    return [
        (case, tool)
        for case in cases
        if image in case.images
        for tool in case.commands
        if not only or case.id in only or f"{case.id}/{tool}" in only
    ]


def representatives(
    cases: Iterable[Case], image: str, parts: Iterable[Part] = ()
) -> list[tuple[Case, str]]:
    """Of each way, and each outcome that it may have on an image, the first case: with pip and uv
    in turn where either would do, of ways alike with each of the two. What is left out says the
    same with other words.

    Cases that a part holds are tried anyway, and count first. Torch is loaded and hashed whole in
    one of those that leave it as it is.
    """
    offered = [(case, tool) for case, tool in pairs(cases, image) if is_offered(case, tool)]
    tried = {always_held(part) for part in parts if part.is_of(image)}
    chosen = [pair for pair in offered if f"{pair[0].id}/{pair[1]}" in tried]
    shown = {_shows(case, image, tool) for case, tool in chosen}
    firsts: dict[tuple[str, ...], list[tuple[Case, str]]] = {}
    for case, tool in offered:
        of_way = firsts.setdefault(_shows(case, image, tool), [])
        if not of_way or of_way[0][0] is case:
            of_way.append((case, tool))
    for of_way in (of_way for what, of_way in firsts.items() if what not in shown):
        tools = [tool for _, tool in chosen]
        chosen.append(min(of_way, key=lambda pair: tools.count(pair[1])))
    return _loaded_once(chosen, image)


def of_a_real_torch(chosen: Iterable[tuple[Case, str]], image: str) -> list[tuple[Case, str]]:
    """Of these, the cases that an image of stand-ins cannot show: those that it does not have, and
    the one that loads and hashes torch whole.
    """
    return [
        (case, tool)
        for case, tool in chosen
        if STAND_INS not in case.images or (case.full and case.expected(image, tool) == "intact")
    ]


def is_offered(case: Case, tool: str) -> bool:
    """Whether the tests that always run may choose it."""
    return tool in NEWEST and case.how not in DEAR


def _shows(case: Case, image: str, tool: str) -> tuple[str, ...]:
    """What a case stands for: a way and its outcome; of ways alike, with which tool."""
    outcome = case.expected(image, tool)
    for name, ways in ALIKE.items():
        if case.how in ways:
            return (name, outcome, tool)
    return (case.how, outcome)


def _loaded_once(chosen: Iterable[tuple[Case, str]], image: str) -> list[tuple[Case, str]]:
    left: list[tuple[Case, str]] = []
    for case, tool in chosen:
        again = any(one.full and one.expected(image, with_) == "intact" for one, with_ in left)
        light = again and case.expected(image, tool) == "intact"
        left.append((replace(case, full=False) if light else case, tool))
    return left


def always_held(part: Part) -> str:
    """A case that a part holds with a tool that the tests always run, by uv if there is one, which
    takes a third of pip's time; "" = none.
    """
    tried = [one for one in part.holds if one.partition("/")[2] in NEWEST]
    return min(tried, key=lambda one: one.partition("/")[2] != "uv", default="")


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


def entry(result: Result, *, day: str, guard: str) -> dict[str, object]:
    """A result as the document keeps it, with the day and the guard that it is of."""
    verdict = result.verdict
    return {
        "day": day,
        "guard": guard,
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
