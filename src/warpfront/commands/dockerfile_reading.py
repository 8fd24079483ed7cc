"""The row and requirements that a GPU Dockerfile asks for, and the lines without a place in a
matrix. Pure.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_CONTINUED = re.compile(r"\\\s*\n")
_CUDA = re.compile(r"cuda:?-?(\d+\.\d+)")
_ROCM = re.compile(r"rocm[\w./-]*?:?-?(\d+\.\d+)")
_STACK = {"torch", "torchvision", "torchaudio"}
# Instructions that only say how a container starts, which an image of a matrix keeps for its user.
_IGNORED = {"ARG", "LABEL", "MAINTAINER", "SHELL", "WORKDIR", "EXPOSE", "STOPSIGNAL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The row of a Dockerfile as `init --vendors` takes it, its requirements, those of torch itself
    (`stack`), files of requirements next to it, and the lines that were not read.
    """

    row: str
    requirements: tuple[str, ...]
    stack: tuple[str, ...]
    files: tuple[str, ...]
    unread: tuple[str, ...]


def read_dockerfile(text: str) -> Proposal:
    """Return the proposal of a Dockerfile; the last stage decides."""
    row, requirements, files, unread = "cpu", list[str](), list[str](), list[str]()
    for number, line in _instructions(text):
        word, _, rest = line.partition(" ")
        instruction = word.upper()
        if instruction == "FROM":
            row = _row_of(rest) or row
        elif instruction == "RUN":
            for command in re.split(r"&&|;", rest):
                found = _installed(command.strip(), files)
                if found is None:
                    unread.append(f"{number}: RUN {command.strip()}")
                requirements += found or ()
        elif instruction not in _IGNORED and not _is_requirements(instruction, rest):
            unread.append(f"{number}: {line}")
    stack = [x for x in requirements if re.split(r"[\[=<>!~ ;@]", x)[0].lower() in _STACK]
    return Proposal(
        row=row,
        requirements=tuple(dict.fromkeys(x for x in requirements if x not in stack)),
        stack=tuple(stack),
        files=tuple(dict.fromkeys(files)),
        unread=tuple(unread),
    )


def _instructions(text: str) -> list[tuple[int, str]]:
    """Return each instruction as one line, with the number of its first line."""
    joined = _CONTINUED.sub(lambda _: " \0", text)
    number, instructions = 1, list[tuple[int, str]]()
    for line in joined.split("\n"):
        plain = " ".join(line.replace("\0", " ").split())
        if plain and not plain.startswith("#"):
            instructions.append((number, plain))
        number += 1 + line.count("\0")
    return instructions


def _row_of(image: str) -> str:
    if match := _CUDA.search(image):
        return f"nvidia:{match[1]}"
    if match := _ROCM.search(image):
        return f"amd:{match[1]}"
    return ""


def _installed(command: str, files: list[str]) -> tuple[str, ...] | None:
    """Return the requirements of one `pip install`; None for another command."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if "install" not in words or not {"pip", "pip3", "uv"} & set(words[: words.index("install")]):
        return None
    found, rest = list[str](), iter(words[words.index("install") + 1 :])
    for word in rest:
        if word in {"-r", "--requirement"}:
            files.append(next(rest, ""))
        elif word in {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c"}:
            next(rest, "")  # the row's index takes its place
        elif not word.startswith("-"):
            found.append(word)
    return tuple(found)


def _is_requirements(instruction: str, rest: str) -> bool:
    return instruction in {"COPY", "ADD"} and "requirements" in rest
