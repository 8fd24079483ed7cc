#!/usr/bin/env python3
"""Breaks the pure rooms in small ways, one way at a time, and asks their fast tests to notice.

    tools/mutate.py [ROOM ...] [--workspace build/mutation] [--children 2] [--again] [--keep]

ROOM is the file name of a room (`render`) or its path; all by default. Exits 1 where a room's tests
kill fewer of its mutants than `threshold` of tests/mutation/rooms.toml, or one of those sown by
hand survives. What a run came to is kept in docs/results/mutation.json with its day and commit, and
docs/results/mutation.md is written from the last run of every room; --keep leaves both alone.
--again tries only those mutants that survived the last time, where the room is still the same.

Two kinds of mutants. *Made* ones come from mutmut: it holds every mutant of a file in one module
and forks the process that has already imported the tests, so a mutant costs a tenth of a second
where others (cosmic-ray, mutatest, poodle) start pytest for each; it changes strings, arguments and
keywords, which they leave alone, and here messages are part of what is promised; it needs no
settings in pyproject.toml and is maintained. What it cannot change is what is outside functions:
tables, patterns, properties. So tests/mutation/sown.toml has mutants written by hand, as text
before and after; they stand for mistakes that somebody could make.

A room is tested by its own tests alone (rooms.toml says which), and in a copy of the working tree.
A survivor is explained in tests/mutation/survivors.toml, by the line that it makes, or it
stands on the page without a reason. A mutant on which the tests hang is killed.

Needs the packages of the groups `dev` and `mutation`, and torch for the rooms that import it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tests" / "mutation"
PAGE = ROOT / "docs" / "results" / "mutation.md"
SCORES = PAGE.with_suffix(".json")
SOURCES = ("src", "tests", "images", "tools", "matrix.yaml", "pyproject.toml", "tasks.py")
# pytest found a failing test, or broke down over the mutant; or the mutant used up its time.
KILLED = {1, 3, -24, 24, 36, 152, 255}
# Hypothesis without a clock, a database or a new seed: the same mutants die every time.
PYTEST = ("--hypothesis-profile=ci", "-p", "no:cacheprovider")
# Threads do not survive a fork.
ALONE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A file to mutate, and the tests that have to notice."""

    path: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """`images/render`: the file below the package."""
        return self.path.removeprefix("src/").removeprefix("warpfront/").removesuffix(".py")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mutant:
    """A mutant that lived: where, one line before, the same after."""

    function: str
    was: str
    becomes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What became of a room's mutants; `sown` are those by hand, `seconds` for all of them. `of` is
    the commit and the day.
    """

    room: Room
    made: int
    survivors: tuple[Mutant, ...]
    sown: int
    sown_survivors: tuple[str, ...]
    seconds: float
    of: str

    @property
    def percent(self) -> float:
        return 100 * (self.made - len(self.survivors)) / self.made if self.made else 0.0


def main() -> int:
    options = read_options()
    table = read_table("rooms")
    rooms = [Room(path=one["path"], tests=tuple(one["tests"])) for one in table["rooms"]]
    asked = [room for room in rooms if not options.rooms or is_asked(room, options.rooms)]
    if not asked:
        sys.exit(f"none of {', '.join(options.rooms)} is in tests/mutation/rooms.toml")
    folder = options.workspace.resolve()
    scores = []
    for room in asked:
        scores.append(score(room, folder / room.name, options.children, again=options.again))
        print(line_of(scores[-1]), flush=True)
        if not options.keep:
            save(scores[-1], SCORES)
            PAGE.write_text(page(rooms, saved(rooms, SCORES), table["threshold"]), encoding="utf-8")
    return int(any(is_short(one, table["threshold"]) for one in scores))


def is_asked(room: Room, names: list[str]) -> bool:
    return room.path in names or Path(room.path).stem in names


def save(score: Score, file: Path) -> None:
    """In the place of what the room's last run came to."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    fields = dataclasses.asdict(score)
    del fields["room"]
    text = json.dumps({**known, score.room.name: fields}, indent=1, sort_keys=True)
    file.write_text(f"{text}\n", encoding="utf-8")


def saved(rooms: Iterable[Room], file: Path) -> list[Score]:
    """What the last run of each room came to, of those that had one."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    scores = []
    for room in rooms:
        if fields := known.get(room.name):
            lived = tuple(Mutant(**one) for one in fields["survivors"])
            sown = tuple(fields["sown_survivors"])
            scores.append(
                Score(**{**fields, "room": room, "survivors": lived, "sown_survivors": sown})
            )
    return scores


def this_commit() -> str:
    """The commit and the day, with a `+` where the tree has more than the commit."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    return f"{said}, {time.strftime('%Y-%m-%d')}"


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rooms", nargs="*", metavar="ROOM")
    parser.add_argument("--workspace", type=Path, default=ROOT / "build" / "mutation")
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--again", action="store_true", help="try only the survivors again")
    parser.add_argument("--keep", action="store_true", help="leave docs/results/mutation.md alone")
    return parser.parse_args()


def read_table(name: str) -> dict[str, Any]:
    return tomllib.loads((TABLES / f"{name}.toml").read_text(encoding="utf-8"))


def is_short(score: Score, threshold: float) -> bool:
    return score.percent < threshold or bool(score.sown_survivors)


def score(room: Room, workspace: Path, children: int, *, again: bool) -> Score:
    start = time.monotonic()
    kept = again and is_unchanged(room, workspace) and bool(exit_codes(room, workspace))
    if not kept:
        shutil.rmtree(workspace, ignore_errors=True)
    copy_tree(workspace)
    sown = [one for one in read_table("sown")["mutants"] if one["room"] == room.path]
    lived = tuple(one["what"] for one in sown if not notices(room, workspace, one))
    names = survivors(room, workspace)
    if names or not kept:
        make_mutants(room, workspace, children, names)
    return Score(
        room=room,
        made=len(exit_codes(room, workspace)),
        survivors=tuple(sorted(shown(name, workspace) for name in survivors(room, workspace))),
        sown=len(sown),
        sown_survivors=lived,
        seconds=round(time.monotonic() - start),
        of=this_commit(),
    )


def copy_tree(workspace: Path) -> None:
    """The files that git knows or would take; mutmut and the tests write there, not here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *SOURCES],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (workspace / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, workspace / name)


def notices(room: Room, workspace: Path, mutant: Mapping[str, str]) -> bool:
    """Whether the room's tests fail with the text of a sown mutant."""
    file = workspace / room.path
    text = file.read_text(encoding="utf-8")
    if text.count(mutant["before"]) != 1:
        sys.exit(
            f"tests/mutation/sown.toml: {room.path} does not have this text exactly once:\n"
            f"{mutant['before']}\ncorrect `before` and `after` of: {mutant['what']}"
        )
    file.write_text(text.replace(mutant["before"], mutant["after"]), encoding="utf-8")
    try:
        return pytest_fails(room, workspace)
    finally:
        file.write_text(text, encoding="utf-8")


def pytest_fails(room: Room, workspace: Path) -> bool:
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-x", "-q", *PYTEST, *room.tests],
        cwd=workspace, env=environment(PYTHONPATH=str(workspace / "src")),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in {0, 1}:
        sys.exit(f"{room.name}: pytest broke down\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.returncode == 1


def environment(**more: str) -> dict[str, str]:
    """Ours, without a folder of sources that would come before the copy's."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, **ALONE, **more}


def is_unchanged(room: Room, workspace: Path) -> bool:
    copy = workspace / room.path
    return copy.is_file() and copy.read_bytes() == (ROOT / room.path).read_bytes()


def exit_codes(room: Room, workspace: Path) -> dict[str, int | None]:
    """mutmut's mutants of the room, each with the exit status of the tests that ran on it."""
    meta = workspace / "mutants" / f"{room.path}.meta"
    if not meta.exists():
        return {}
    return dict(json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"])


def survivors(room: Room, workspace: Path) -> tuple[str, ...]:
    codes = exit_codes(room, workspace)
    return tuple(name for name, code in codes.items() if code not in KILLED)


def make_mutants(room: Room, workspace: Path, children: int, names: tuple[str, ...]) -> None:
    """Run the room's tests on each of its mutants, or on `names` where there are any."""
    (workspace / "setup.cfg").write_text(settings(room), encoding="utf-8")
    log = workspace / "mutmut.log"
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            [sys.executable, "-m", "mutmut", "run", "--max-children", str(children), *names],
            cwd=workspace, env=environment(), stdout=output, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    codes = exit_codes(room, workspace)
    if done.returncode or not codes or None in codes.values():
        tail = log.read_text(encoding="utf-8", errors="replace")[-3000:]
        sys.exit(f"{room.name}: mutmut did not come to its end ({log})\n{tail}")


def settings(room: Room) -> str:
    """mutmut's settings: read from setup.cfg where pyproject.toml has none."""
    lists: dict[str, Iterable[str]] = {
        "source_paths": ["src"],
        "only_mutate": [room.path],
        "also_copy": [name for name in SOURCES if name not in {"src", "tests", "pyproject.toml"}],
        "pytest_add_cli_args": PYTEST,
        "pytest_add_cli_args_test_selection": room.tests,
    }
    entries = [
        f"{key} =\n" + "".join(f"    {one}\n" for one in ones) for key, ones in lists.items()
    ]
    return "[mutmut]\nuse_git_change_detection = false\n" + "".join(entries)


def shown(name: str, workspace: Path) -> Mutant:
    """A mutant of mutmut's as its function and the line that it changes."""
    diff = subprocess.run(
        [sys.executable, "-m", "mutmut", "show", name],
        cwd=workspace, env=environment(), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    lines = [line for line in diff.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]
    found = re.search(r"\.x[_ǁ](.+?)__mutmut_\d+$", name)
    return Mutant(
        function=found[1].replace("ǁ", ".") if found else name,
        was=joined(lines, "-"),
        becomes=joined(lines, "+"),
    )


def joined(lines: Iterable[str], sign: str) -> str:
    return " ".join(line[1:].strip() for line in lines if line.startswith(sign))


def line_of(score: Score) -> str:
    lived = len(score.survivors)
    return (
        f"{score.room.name}: {score.made - lived} of {score.made} killed ({score.percent:.1f} %), "
        f"{score.sown - len(score.sown_survivors)} of {score.sown} sown, {score.seconds:.0f} s"
        + "".join(f"\n  sown and alive: {what}" for what in score.sown_survivors)
        + "".join(f"\n  {one.function}: {one.was} -> {one.becomes}" for one in score.survivors)
    )


def page(rooms: Iterable[Room], scores: Sequence[Score], threshold: float) -> str:
    made = sum(one.made for one in scores)
    lived = sum(len(one.survivors) for one in scores)
    rows = "".join(row(one) for one in scores)
    known = {one.room for one in scores}
    rows += "".join(
        f"| {room.name} | never run | | | | | | |\n" for room in rooms if room not in known
    )
    return (
        "# Mutants of the pure rooms\n\n"
        "Generated by `tools/mutate.py`, which says how they are made. A room's own fast tests\n"
        f"have to kill {threshold:g} % of what mutmut makes of it, and all that was sown by hand."
        "\n\n"
        "| room | mutants | killed | survived | equivalent | % killed | sown, killed | of |\n"
        "|---|--:|--:|--:|--:|--:|--:|---|\n"
        f"{rows}| **together** | {made} | {made - lived} | {lived} | "
        f"{sum(equivalents(one) for one in scores)} | {100 * (made - lived) / made:.1f} | "
        f"{sum(one.sown for one in scores)}, "
        f"{sum(one.sown - len(one.sown_survivors) for one in scores)} | |\n\n"
        "Equivalent ones count as survivors: no test could tell them from the original.\n"
        + "".join(section(one) for one in scores)
    )


def row(score: Score) -> str:
    lived = len(score.survivors)
    return (
        f"| {score.room.name} | {score.made} | {score.made - lived} | {lived} | "
        f"{equivalents(score)} | {score.percent:.1f} | "
        f"{score.sown}, {score.sown - len(score.sown_survivors)} | {score.of} |\n"
    )


def equivalents(score: Score) -> int:
    return sum(reason_of(score.room, one).startswith("equivalent") for one in score.survivors)


def section(score: Score) -> str:
    if not score.survivors:
        return ""
    rows = "".join(
        f"| `{one.function}` | {code(one.was)} | {code(one.becomes)} | "
        f"{reason_of(score.room, one)} |\n"
        for one in score.survivors
    )
    head = "| in | was | becomes | why it lives |\n|---|---|---|---|\n"
    return f"\n## {score.room.name}\n\n{head}{rows}"


def code(text: str) -> str:
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


def reason_of(room: Room, mutant: Mutant) -> str:
    return next(
        (one["reason"] for one in reasons(room) if explains(one, mutant)), "no reason given yet"
    )


def reasons(room: Room) -> Iterator[Mapping[str, Any]]:
    return (one for one in read_table("survivors")["survivors"] if one["room"] == room.path)


def explains(reason: Mapping[str, Any], mutant: Mutant) -> bool:
    """By the line that it makes, and by its function unless the reason is about several."""
    here = reason.get("function", mutant.function) == mutant.function
    return here and mutant.becomes in reason["becomes"]


if __name__ == "__main__":
    sys.exit(main())
