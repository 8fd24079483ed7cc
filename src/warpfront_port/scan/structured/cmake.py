"""CMake: commands with their arguments, and the arms of `if`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from warpfront_port.scan.findings import Match, Side
from warpfront_port.scan.structured.arms import Arms
from warpfront_port.scan.structured.shell import Word
from warpfront_port.scan.words import GFX, compiler_flag

_TOKEN = re.compile(
    r"(?s)(?P<comment>\#\[(?P<fence>=*)\[.*?\](?P=fence)\]|\#[^\n]*)"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*+\"?)|(?P<open>\()|(?P<close>\))|(?P<word>[^\s()#\"]+)"
)
_HIP_ARM = re.compile(
    r"(?i)enable_language\s*\(\s*HIP|LANGUAGES[^)]*\bHIP\b|find_package\s*\(\s*hip\b"
)
_LIBRARY = re.compile(r"CUDA::\w+|\$\{CUDA_\w*LIBRAR\w*\}|\$\{CUDA_CUBLAS\w*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CMakeCommand:
    """A command, name in small letters, and the sides that reach it."""

    name: str
    start: int
    arguments: tuple[Word, ...]
    sides: frozenset[Side]


def read_cmake(text: str) -> Iterator[CMakeCommand]:
    """Yield the commands of CMake text in order, without `if` and its like."""
    arms = Arms()
    for name, start, arguments in _raw_commands(text):
        condition = " ".join(word.text for word in arguments)
        negated = condition.startswith("NOT ")
        if name == "if":
            arms.open(condition, negated=negated)
        elif name in {"elseif", "else"}:
            arms.next(condition if name == "elseif" else "", negated=negated)
        elif name == "endif":
            arms.close()
        else:
            yield CMakeCommand(name=name, start=start, arguments=arguments, sides=arms.sides)


def _raw_commands(text: str) -> Iterator[tuple[str, int, tuple[Word, ...]]]:
    name, start, depth = "", 0, 0
    arguments: list[Word] = []
    for token in _TOKEN.finditer(text):
        kind = "word" if token["word"] else "string" if token["string"] else token.lastgroup
        if kind in {"word", "string"}:
            if depth == 0:
                name, start = token[0].lower(), token.start()
            else:
                inner = token[0].strip('"') if kind == "string" else token[0]
                arguments.append(Word(text=inner, start=token.start(), end=token.end()))
        elif kind == "open":
            depth += 1
        elif kind == "close" and depth:
            depth -= 1
            if depth == 0:
                yield name, start, tuple(arguments)
                name, arguments = "", []


def hip_arm(text: str) -> re.Match[str] | None:
    """Return the place where CMake text builds for AMD: HIP as a language, or its package."""
    return _HIP_ARM.search(text)


def cmake_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches of every rule in CMake text."""
    has_hip = hip_arm(text) is not None
    for command in read_cmake(text):
        for rule, snippet, shift in _of_command(command, has_hip=has_hip):
            end = command.arguments[-1].end if command.arguments else command.start
            yield _rule_match(rule, command, (command.start, end + 1), snippet, shift)
        if command.name not in {"message", "option", "string", "add_subdirectory", "include"}:
            cudas: list[bool] = []
            for word in command.arguments:
                if word.text == "CACHE":
                    break  # its type and the text about it
                if not _is_cudas(word.text, cudas):
                    yield from _of_word(word, command)


def _is_cudas(text: str, opened: list[bool]) -> bool:
    """Return true if a word is in, or opens, a generator expression that is true for CUDA alone.

    `opened` has that fact for each expression open before the word, and is updated by it.
    """
    cudas = any(opened)
    for mark in _EXPRESSION.finditer(text):
        if mark[0] == ">":
            opened[-1:] = []
        else:
            opened.append(_FOR_CUDA.match(text, mark.end()) is not None)
            cudas = cudas or opened[-1]
    return cudas


_EXPRESSION = re.compile(r"\$<|>(?!=)")
_FOR_CUDA = re.compile(r"(?i)\$<COMPILE_LANG\w*:CUDA|\$(?:<BOOL:)?\$?\{?\w*CUDA\w*\}")


def _of_command(command: CMakeCommand, *, has_hip: bool) -> Iterator[tuple[str, str, int]]:
    words = [word.text for word in command.arguments]
    first = words[0] if words else ""
    snippet = f"{command.name}({_words(command)[:60]})"
    better = -1 if has_hip else 0
    if command.name == "find_package" and first in {"CUDA", "CUDAToolkit", "CUDNN"}:
        yield "BL205", snippet, better if "REQUIRED" in words else -1
    elif (
        (command.name == "enable_language" and "CUDA" in words)
        or (command.name == "project" and "CUDA" in words[1:])
        or command.name in {"cuda_add_library", "cuda_add_executable"}
    ):
        yield "BL205", snippet, better
    elif command.name == "set" and first == "CMAKE_CUDA_ARCHITECTURES":
        yield "BL205", snippet, -1


def _words(command: CMakeCommand) -> str:
    return " ".join(word.text for word in command.arguments)


def _of_word(word: Word, command: CMakeCommand) -> Iterator[Match]:
    flags = word.text if " " not in word.text or word.text.startswith(("-", "$")) else ""
    for rule, flag in compiler_flag(flags):
        yield _rule_match(rule, command, (word.start, word.end), flag)
    if command.name == "target_link_libraries" and _LIBRARY.search(word.text):
        yield _rule_match("BL207", command, (word.start, word.end), word.text)
    if command.name == "set" and _names_devices(word.text):
        yield _rule_match(
            "BL203", command, (command.start, word.end), f"set({_words(command)[:60]})"
        )


def _names_devices(text: str) -> bool:
    """Return true for a list of devices or of flags for them. A sentence may name one too."""
    named = GFX.search(text) is not None
    return named and all(part.startswith("-") or GFX.search(part) for part in text.split())


def _rule_match(
    rule: str, command: CMakeCommand, span: tuple[int, int], snippet: str, shift: int = 0
) -> Match:
    return Match(
        rule=rule, start=span[0], end=span[1], what=snippet, shift=shift, sides=command.sides
    )
