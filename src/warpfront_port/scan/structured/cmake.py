"""CMake: commands with their arguments, and the arms of `if`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import replace

from warpfront_port.scan.findings import Gate, Match
from warpfront_port.scan.structured.commands import AMDS, FALSE, Arms, Command, Word, sides_of
from warpfront_port.scan.words import GFX, compiler_flag

_TOKEN = re.compile(
    r"(?s)(?P<comment>\#\[(?P<fence>=*)\[.*?(?:\](?P=fence)\]|\Z)|\#[^\n]*)"
    r"|(?P<string>\"(?:[^\"\\]|\\.)*+\"?)|(?P<open>\()|(?P<close>\))|(?P<word>[^\s()#\"]+)"
)
# Where CMake builds for AMD: HIP as a language, or its package.
HIP_ARM = re.compile(
    r"(?i)enable_language\s*\(\s*HIP|LANGUAGES(?:(?!LANGUAGES)[^)])*\bHIP\b|find_package\s*\(\s*hip\b"
)
_LIBRARY = re.compile(r"CUDA::\w+|\$\{CUDA_\w*LIBRAR\w*\}|\$\{CUDA_CUBLAS\w*\}")
_FOR_CUDA = re.compile(r"(?i)\$<COMPILE_LANG\w*:CUDA")


def read_cmake(text: str) -> Iterator[Command]:
    """Yield the commands of CMake text in order, in small letters, without `if` and its like."""
    arms = Arms()
    for command in _raw_commands(text):
        condition = " ".join(command.texts)
        negated = condition.startswith("NOT ")
        if command.name == "if":
            arms.open(condition, negated=negated)
        elif command.name in {"elseif", "else"}:
            arms.next(condition if command.name == "elseif" else "", negated=negated)
        elif command.name == "endif":
            arms.close()
        else:
            words = tuple(replace(word, sides=arms.sides) for word in command.words)
            yield replace(command, words=words, sides=arms.sides, conditions=arms.conditions)


def false_by_default(commands: Iterable[Command]) -> AbstractSet[str]:
    """Return the names that are false where no value is given and no CUDA is found: options that
    are off, and what a build seeks of CUDA and goes on without.

    An option for HIP is none of them: a build for AMD turns it on.
    """
    false, needed = set[str](), set[str]()
    for command in commands:
        is_off = True
        match command.name, command.texts:
            case "option", (name, _, value, *_):
                is_off = value.upper() in FALSE
            case "option", (name, *_):
                pass
            case "set", (name, value, *kind) if kind[:2] == ["CACHE", "BOOL"] or value not in FALSE:
                is_off = value.upper() in FALSE
            case "find_package", ("CUDA" | "CUDAToolkit" as name, *rest):
                name, is_off = f"{name}_FOUND", "REQUIRED" not in rest
            case "check_language", ("CUDA",):
                name = "CMAKE_CUDA_COMPILER"
            case "message", ("FATAL_ERROR", *_):  # what it ends without
                name = "".join(c[4:] for c in command.conditions[-1:] if c.startswith("NOT "))
                is_off = False
            case _:
                continue
        (false if is_off and sides_of(name) != AMDS else needed).add(name)
    return false - needed


def _raw_commands(text: str) -> Iterator[Command]:
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
                yield Command(name=name, start=start, words=tuple(arguments))
                name, arguments = "", []


def cmake_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches of every rule in CMake text."""
    better = -1 if HIP_ARM.search(text) is not None else 0
    commands = tuple(read_cmake(text))
    off = false_by_default(commands)
    for command in commands:
        for match in _of_command(command, better):
            yield replace(match, gate=Gate.OPTION) if command.is_under(off) else match


def _of_command(command: Command, better: int) -> Iterator[Match]:
    """Yield the matches of a command, and of its words but for those for CUDA alone."""
    yield from _of_name(command, better)
    cudas = False  # in a generator expression for CUDA
    for word in command.words:
        if word.text == "CACHE":
            break  # its type and the text about it
        cudas = cudas or _FOR_CUDA.search(word.text) is not None
        if not cudas:
            yield from _of_word(word, command)
        cudas = cudas and not word.text.endswith(">")


def _of_name(command: Command, better: int) -> Iterator[Match]:
    shift: int | None = None
    match command.name, command.texts:
        case "find_package", ("CUDA" | "CUDAToolkit" | "CUDNN", *options):
            shift = better if "REQUIRED" in options else -1
        case ("project", (_, *words)) | ("enable_language", words) if "CUDA" in words:
            shift = better
        case (("cuda_add_library" | "cuda_add_executable"), _):
            shift = better
        case "set", ("CMAKE_CUDA_ARCHITECTURES", *_):
            shift = -1
        case _:
            pass
    if shift is not None:
        excerpt = f"{command.name}({' '.join(command.texts)[:60]})"
        end = command.words[-1].end if command.words else command.start
        yield Word(text=excerpt, start=command.start, end=end + 1, sides=command.sides).match(
            "BL205", shift=shift
        )


def _of_word(word: Word, command: Command) -> Iterator[Match]:
    flags = word.text if " " not in word.text or word.text.startswith(("-", "$")) else ""
    for rule, flag in compiler_flag(flags):
        yield word.match(rule, flag)
    if command.name == "target_link_libraries":
        # `cuda` alone may be a target's own name.
        library = f"-l{word.text}" if word.text != "cuda" else ""
        if ("BL207", library) in compiler_flag(library) or _LIBRARY.search(word.text):
            yield word.match("BL207")
    # A list of devices or of flags for them: a sentence may name one too.
    named = GFX.search(word.text) is not None
    devices = all(part.startswith("-") or GFX.search(part) for part in word.text.split())
    if command.name == "set" and named and devices:
        excerpt = f"set({' '.join(command.texts)[:60]})"
        yield replace(word, start=command.start).match("BL203", excerpt)
