"""Rules about commands, variables and options, in whatever kind of file they are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import starmap

from warpfront_port.scan.catalogue import expressions, rules_by_name
from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.structured.commands import Command, Word
from warpfront_port.scan.structured.shell import read_commands
from warpfront_port.scan.words import (
    CUDA_INDEX,
    NVIDIA_IMAGE,
    allocator_settings,
    compiler_flag,
    read_setting,
)

_PROGRAMS = rules_by_name("programs")
_VARIABLES = rules_by_name("environment")
_ENGINES = frozenset({"docker", "podman", "nerdctl", "docker-compose", "singularity", "apptainer"})
_INSTALLERS = frozenset({"apt-get", "apt", "yum", "dnf", "microdnf", "zypper", "aptitude"})
(_CUDA_PACKAGE,) = expressions("packages").values()
(CONDA_CUDA,) = expressions("conda_packages").values()
_INSTALLER = re.compile(r"pip[\d.]*|uv|py(?:thon)?[\d.]*(?:_?(?:bin|exe|executable))?|pip_?\w*")
_INDEXES = ("-i", "--index-url", "--default-index")
_OFFLOADED = re.compile(r"--(?:offload-arch|amdgpu-target)=gfx\w+")
_INSTALLATION = re.compile(r"(?:pip[\d.]* install|git clone)[ \t](?P<words>[^\n&|;#]*)")
_WAY_FOR_AMD = re.compile(r"(?i)\brocm|\bamd\b|\bhip\b")
_BESIDE_PACKAGE = re.compile(r"\b\w+\.__file__[^\n]{0,200}\bcp\s+-\w+")


def readme_rule_matches(text: str) -> Iterator[Match]:
    """Yield the packages for CUDA alone that a README installs, where it names no way for AMD."""
    for line in () if _WAY_FOR_AMD.search(text) else _INSTALLATION.finditer(text):
        for word in re.finditer(r"[^\s`'\"]+", line["words"]):
            place = Word.found(word, offset=line.start("words"))
            for rule, shift in read_requirement(word[0].partition("=")[0]):
                if rule in {"DP303", "DP304"}:
                    yield place.match(rule, shift=shift)


def script_rule_matches(text: str, offset: int = 0) -> Iterator[Match]:
    """Yield the matches in shell text at `offset` of its file."""
    for command in read_commands(text, offset):
        for word in command.assignments:
            name, _, value = word.text.partition("=")
            yield from variable_rule_matches(name.rstrip("+"), value, word)
        if command.words:
            yield from _of_command(command)
    for match in _BESIDE_PACKAGE.finditer(text) if "__file__" in text else ():
        yield Word.found(match, offset=offset).match("PY060", match[0][:80])


def _of_command(command: Command) -> Iterator[Match]:
    first, last = command.words[0], command.words[-1]
    if command.name in _PROGRAMS:
        yield first.match("SH501", command.name)
    if command.name in _ENGINES or "docker" in command.texts:
        yield from _containers(command.words)
    installs = command.name in _INSTALLERS and "install" in command.texts
    conda = command.name in {"conda", "mamba", "micromamba"}
    for word in command.words if installs or conda else ():
        if (_CUDA_PACKAGE if installs else CONDA_CUDA).fullmatch(word.text):
            yield word.match("CT405" if installs else "DP317")
    yield from _installs(command)
    # `cp -r ours/* .venv/lib/python3.11/site-packages/transformers/`
    copies = command.name in {"cp", "rsync", "install", "mv"} and len(command.words) > 2
    if copies and "site-packages/" in last.text:
        yield last.match("PY060")
    nvccs = any("nvcc" in text.lower() for text in command.texts)
    for word, following in zip(command.words, (*command.texts[1:], ""), strict=True):
        yield from word_rule_matches(word, nvccs=nvccs)
        if word.text.startswith("--"):
            option, _, value = word.text.partition("=")
            yield from starmap(word.match, read_setting(option, value or following))


def variable_rule_matches(name: str, value: str, word: Word) -> Iterator[Match]:
    """Yield the matches in `NAME=value`, in ENV, export, compose's environment and CI's env."""
    if name in _VARIABLES and value not in {"0", ""}:
        yield word.match(_VARIABLES[name], name)
    for excerpt, shift in allocator_settings(value):
        yield word.match("PY010", excerpt, shift)
    yield from starmap(word.match, read_setting(name, value.strip("\"' ")))
    if "\n" not in value and CUDA_INDEX.search(value):
        yield word.match("DP314", value[:80])


def word_rule_matches(word: Word, *, nvccs: bool = False) -> Iterator[Match]:
    """Yield flags and indexes in one word; `nvccs` is true for a command of nvcc's."""
    if "-" in word.text or "arch" in word.text:
        for rule, flag in compiler_flag(word.text):
            if nvccs or flag != "--threads":  # many a program has an option of this name
                yield word.match(rule, flag)
    if _OFFLOADED.match(word.text):  # for this device and no other
        yield word.match("BL203", shift=1)
    if "://" in word.text and CUDA_INDEX.search(word.text):
        yield word.match("DP314", word.text[:80])


def _containers(words: tuple[Word, ...]) -> Iterator[Match]:
    for word, after in zip(words, (*(word.text for word in words[1:]), ""), strict=True):
        gpus = word.text in {"--gpus", "--nv"} or word.text.startswith("--gpus=")
        if gpus or "--runtime=nvidia" in {word.text, f"{word.text}={after}"}:
            yield word.match("CT402")
        if NVIDIA_IMAGE.fullmatch(word.text) and not word.text.startswith(("/", ".", "-")):
            yield word.match("CT401")


def _installs(command: Command) -> Iterator[Match]:
    """Yield the packages that `pip install` and `uv pip install` name."""
    texts, name = command.texts, command.name.strip("${}").lower()
    if "install" not in texts or _INSTALLER.fullmatch(name) is None:
        return
    verb = texts.index("install")
    arguments = command.words[verb + 1 :]
    # With an index of its own, torch comes from there.
    indexed = any(w.text.startswith(_INDEXES) or "whl/rocm" in w.text for w in arguments)
    for word in arguments:
        for rule, shift in read_requirement(word.text) if word.text[:1] != "-" else ():
            if not (indexed and rule == "DP302"):
                yield word.match(rule, shift=shift)
