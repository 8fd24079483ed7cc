"""Commands of the documentation's console blocks, read from the pages and tried."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from warpfront.cli.program import run
from warpfront.cli.tasks.declaring import Command
from warpfront.matrix.selection import nearest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    path
    for pattern in ("README.md", "ARCHITECTURE.md", "docs/*.md", "docs/guides/*.md", "*/README.md")
    for path in ROOT.glob(pattern)
)
PROGRAM = "warpfront"
_FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
# The user's, root's, or none before a program of ours.
_PROMPT = re.compile(r"^(?:\$ |# |(?=warpfront ))", re.MULTILINE)
_INLINE = re.compile(r"`(warpfront [a-z][^`]*)`")
# What a command named in a sentence may leave out.
_LEFT_OUT = re.compile(r" is missing| requires an argument|usage: ")
_ASSIGNMENT = re.compile(r"\w+=")

ENGINE = "needs a container engine"
INDEX = "asks a package index"
REGISTRY = "needs a registry"
MACHINE = "examines or changes the machine"
INSTALL = "needs `install:` of a release in matrix.yaml"
DOWNLOADED = "needs files of earlier runs"
# First words of a command of ours -> why its lines are parsed and not run.
REASONS: Mapping[str, str] = {
    "audit": "asks a database of vulnerabilities",
    "bench compare": DOWNLOADED,
    "bench read-log": DOWNLOADED,
    "bench run": ENGINE,
    "bench watch": DOWNLOADED,
    "build": ENGINE,
    "build-wheels": ENGINE,
    "ci check": INSTALL,
    "ci plan": "needs a git repository with its origin",
    "ci run": ENGINE,
    "ci write": INSTALL,
    "clean": ENGINE,
    "compat": INDEX,
    "doctor": MACHINE,
    "engine": MACHINE,
    "explain": DOWNLOADED,
    "lock": INDEX,
    "models": DOWNLOADED,
    "port check": ENGINE,
    "port compile": ENGINE,
    "port fits": INDEX,
    "port preflight": INDEX,
    "port try": ENGINE,
    "publish": REGISTRY,
    "release": REGISTRY,
    "render": DOWNLOADED,
    "report": ENGINE,
    "runner": MACHINE,
    "sbom": ENGINE,
    "verify": ENGINE,
    "why": REGISTRY,
}
# Programs of others -> why their lines are not run.
OTHERS: Mapping[str, str] = {
    "cosign": REGISTRY,
    "docker": ENGINE,
    "git": "the network",
    "helm": "a cluster",
    "kubectl": "a cluster",
    "nox": "a Python with torch; its options are those of `verify`",
    "oras": REGISTRY,
    "pip": INDEX,
    "pytest": "torch",
    "python": "torch, or a new environment",
    "python3": "torch, or a new environment",
    "systemctl": MACHINE,
    "systemd-creds": MACHINE,
    "tools/reproduce": "two images",
    "warpfront-guard": "an image's own program",
    "ci/runner/setup.sh": MACHINE,
    "scripts/quickstart": ENGINE,
    "scripts/test": ENGINE,
}
# What the shell does itself: files and folders, done here for the lines that run.
SHELL = {"cat", "cd", "cp", "echo", "export", "mkdir", "printf", ".", "source"}


class ConsoleError(Exception):
    """A console block that does not do what its page shows."""


@dataclass(frozen=True)
class Line:
    """One command of a console block, and the lines of output below it."""

    page: str
    number: int
    words: tuple[str, ...]
    output: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.words[0] == PROGRAM

    @property
    def reason(self) -> str:
        """Return why this line is not run; "" if it is."""
        if not self.is_ours:
            return OTHERS.get(self.words[0], "")
        names = (" ".join(self.words[1 : 1 + count]) for count in (2, 1))
        return next((REASONS[name] for name in names if name in REASONS), "")

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {shlex.join(self.words)}"


def read_lines(page: str, text: str) -> Iterator[Line]:
    """Yield the commands of every console block, in their order; `&&` and `|` join several."""
    for block in _FENCED.finditer(text):
        shown = textwrap.dedent(block[2])
        start = text.count("\n", 0, block.start()) + 2
        prompts = [found for found in _PROMPT.finditer(shown) if _is_prompt(found, block[1])]
        ends = [*(one.start() for one in prompts[1:]), len(shown)]
        for prompt, end in zip(prompts, ends, strict=False):
            typed, *output = shown[prompt.end() : end].replace("\\\n", " ").splitlines()
            number = start + shown.count("\n", 0, prompt.start())
            commands = list(_split(shlex.split(typed, comments=True)))
            for words in commands:
                printed = output if words is commands[-1] else ()
                yield Line(page, number, words, tuple(printed))


def _is_prompt(found: re.Match[str], kind: str) -> bool:
    """Return whether a command begins here. Help is a `text` block that begins with an example; the
    prompt of root is one where the block begins with it.
    """
    if found[0] == "# ":
        return kind == "console" and found.string.startswith("# ")
    if not found[0]:
        return not kind
    return kind in {"console", ""} or (kind == "text" and not found.start())


def read_prose(page: str, text: str) -> Iterator[Line]:
    """Yield the commands of ours that a page names in its sentences and tables."""
    for found in _INLINE.finditer(_FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)):
        words = next(_split(shlex.split(found[1].replace("\n", " "))))
        yield Line(page, text.count("\n", 0, found.start()) + 1, words)


def _split(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Yield the commands between `&&` and pipes, without variables set in front."""
    while words:
        cut = next((place for place, word in enumerate(words) if word in {"&&", "|"}), len(words))
        one, words = words[:cut], words[cut + 1 :]
        one = _without_redirection(one)
        while one and _ASSIGNMENT.match(one[0]) and len(one) > 1:
            one = one[1:]
        yield tuple(one)


def _without_redirection(words: list[str]) -> list[str]:
    """Return the words of a program of ours, without the file that its output goes to."""
    ends = [place for place, word in enumerate(words) if word in {">", ">>"}]
    return words[: ends[0]] if ends and words[0] == PROGRAM else words


def parse(line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Read a line's words as the program does, and run nothing. Return what is wrong: an unknown
    command or option, a missing word, a wrong choice, an old spelling; "" if nothing is.
    """
    wrong = []

    def record(command: Command, given: Mapping[str, object], _volume: object) -> None:
        for name, (_, option) in command.each.items():
            value = str(given.get(name) or "")
            if value and option.choices and value not in option.choices:
                wrong.append(nearest(value, option.choices))

    with monkeypatch.context() as patched:
        patched.setattr(Command, "run", record)
        code = run(list(line.words[1:]))
    printed = capsys.readouterr()
    text = printed.err + "".join(wrong) or (printed.out if code else "")
    return f"{line}: {text}" if text else ""


def parse_in_prose(
    line: Line, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Do as `parse`, for a command that a sentence names: it may leave out words."""
    wrong = parse(line, monkeypatch, capsys)
    return "" if _LEFT_OUT.search(wrong) else wrong


def perform(line: Line, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Run a line in `folder`; the output shown has to come out. Return the folder after it."""
    if not line.is_ours:
        return _act_as_shell(line, folder)
    os.chdir(folder)
    code = run(list(line.words[1:]))
    printed = capsys.readouterr()
    if code:
        raise ConsoleError(f"{line}: exit code {code}\n{printed.out}{printed.err}")
    rest = iter(f"{printed.out}{printed.err}".splitlines())
    for shown in line.output:
        pattern = ".*".join(map(re.escape, shown.rstrip().split("...")))
        if not any(re.fullmatch(rf"{pattern}\s*", one) for one in rest):
            raise ConsoleError(f"{line}: does not print {shown!r}\n{printed.out}{printed.err}")
    return folder


def _act_as_shell(line: Line, folder: Path) -> Path:
    name, *words = line.words
    if name == "cd":
        return (folder / words[0]).resolve()
    if name == "mkdir":
        for word in [word for word in words if not word.startswith("-")]:
            (folder / word).mkdir(parents=True, exist_ok=True)
    elif name == "cp":
        *sources, target = [folder / word for word in words if not word.startswith("-")]
        for source in sources:
            if source.is_dir():
                is_inside = target.is_dir() and not str(line).endswith("/. .")
                shutil.copytree(
                    source, target / source.name if is_inside else target, dirs_exist_ok=True
                )
            else:
                shutil.copy(source, target)
    elif name in {"echo", "printf"} and words[-2:-1] in ([">"], [">>"]):
        text = words[0].replace("\\n", "\n") + ("\n" if name == "echo" else "")
        with (folder / words[-1]).open("a" if words[-2] == ">>" else "w") as file:
            file.write(text)
    return folder
