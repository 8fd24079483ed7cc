"""Recipes of CONTRIBUTING.md, read from its text and followed on a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
# What recipes change and run; recorded machines are big and none of their business.
COPIED = ("docs", "images", "src", "tests", "CONTRIBUTING.md", "README.md")
COPIED_FILES = ("matrix.yaml", "noxfile.py", "pyproject.toml", "tasks.py")
SECONDS = 120

_PATH = r"`(?P<path>[\w./-]+\.\w+)`"
_CHANGES = re.compile(
    rf"^In {_PATH}, the first (?P<said>`.+?)(?:\n\n|\Z)", re.DOTALL | re.MULTILINE
)
_BECOMES = re.compile(r"`([^`]+)`\s+becomes\s+`([^`]+)`")
_FENCED = re.compile(r"```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class RecipeError(Exception):
    """A recipe says something that cannot be done."""


@dataclass(frozen=True)
class Copy:
    """A copy of the repository that recipes may change, and programs that run in it."""

    root: Path

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        if file.exists():
            raise RecipeError(f"{path} is there already")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def append(self, path: str, text: str) -> None:
        file = self.root / path
        file.write_text(file.read_text(encoding="utf-8") + text, encoding="utf-8")

    def insert(self, path: str, line: str, text: str) -> None:
        """Put `text` below the first line that reads `line`, however it is indented."""
        lines = (self.root / path).read_text(encoding="utf-8").splitlines(keepends=True)
        places = [number for number, one in enumerate(lines, 1) if one.strip() == line]
        if not places:
            raise RecipeError(f"{path} has no line {line!r}")
        lines.insert(places[0], text)
        (self.root / path).write_text("".join(lines), encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text(encoding="utf-8")
        if old not in text:
            raise RecipeError(f"{path} does not say {old!r}")
        (self.root / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    def run(self, command: str) -> str:
        """What a command prints, offline, with the copy's own package. It has to succeed."""
        program, *arguments = shlex.split(command)
        beside = Path(sys.executable).with_name(program)
        done = subprocess.run(
            (beside if beside.exists() else program, *arguments),
            cwd=self.root,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RecipeError(
                f"`{command}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            )
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        nowhere = self.root / "nowhere"
        return {
            "DOCKER_HOST": f"unix://{nowhere}",
            "HOME": str(nowhere),
            "PATH": os.environ["PATH"],
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PYTHONPATH": str(self.root / "src"),
            "XDG_CACHE_HOME": str(nowhere / "cache"),
        }


Do = Callable[[Copy], None]
_FORMS: tuple[tuple[re.Pattern[str], Callable[..., None]], ...] = (
    (re.compile(rf"A new file {_PATH}.*:"), Copy.write),
    (re.compile(rf".*\bat the end of {_PATH}:", re.IGNORECASE), Copy.append),
    (re.compile(rf".*\bin {_PATH}, below `(?P<line>.+)`:", re.IGNORECASE), Copy.insert),
)


def copy_repository(folder: Path) -> Copy:
    """With the byte code that is there: copies keep their times, so it counts for them, too."""
    ignore = shutil.ignore_patterns("detect", "results", "integration", "adversary", "corpus")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in COPIED_FILES:
        shutil.copy(ROOT / name, folder / name)
    return Copy(folder)


def read_recipes(text: str) -> Mapping[str, str]:
    """Title to text: what stands below each `###` of the part about recipes."""
    _, _, part = text.partition("\n## Recipes\n")
    sections = re.split(r"^### ", part, flags=re.MULTILINE)[1:]
    return {title: body for title, _, body in (section.partition("\n") for section in sections)}


def follow(recipe: str, copy: Copy) -> None:
    """Do what a recipe says, in its order. Raises `RecipeError` where that cannot be done, and for
    a block that nothing says where to put.
    """
    for do in _read_steps(recipe):
        do(copy)


def _read_steps(recipe: str) -> Iterator[Do]:
    at = 0
    for block in _FENCED.finditer(recipe):
        said = recipe[at : block.start()].strip()
        yield from _replacements(said)
        yield _step_of(said.rpartition("\n\n")[2].replace("\n", " "), block["kind"], block["text"])
        at = block.end()
    yield from _replacements(recipe[at:])


def _replacements(said: str) -> Iterator[Do]:
    for found in _CHANGES.finditer(said):
        for old, new in _BECOMES.findall(found["said"]):
            yield partial(Copy.replace, path=found["path"], old=old, new=new)


def _step_of(said: str, kind: str, text: str) -> Do:
    if kind == "console":
        return partial(_show, session=text)
    for form, do in _FORMS:
        if found := form.fullmatch(said):
            return partial(do, text=text, **found.groupdict())
    raise RecipeError(f"nothing says where this goes: {said!r}")


def _show(copy: Copy, session: str) -> None:
    """Run each command of a console block; the lines below it have to come out, in their order.
    `...` stands for anything.
    """
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, *shown = part.splitlines()
        printed = iter(copy.run(command).splitlines())
        for line in shown:
            pattern = ".*".join(map(re.escape, line.split("...")))
            if not any(re.fullmatch(rf"{pattern}\s*", one) for one in printed):
                raise RecipeError(f"`{command}` does not show: {line}")
