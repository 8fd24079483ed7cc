"""Shell text as commands with offsets, and the rules about commands. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from warpfront_port.scan.findings import SIDES, Gate, Match, Side
from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.setting_rules import read_setting
from warpfront_port.scan.words import (
    ALLOCATOR,
    CUDA_INDEX,
    NVIDIA_IMAGE,
    allocator_rules,
    compiler_flag,
)

_TOKEN = re.compile(
    r"""(?xs)
    (?P<splice>\\\r?\n)
    |(?P<space>[^\S\n]+)
    |(?P<comment>(?<![^\s;&|()`])\#[^\n]*)
    |(?P<break>\|\||&&|;;|[;&|\n()`{}]|\$\()
    |(?P<word>(?:[^\s\\'\"`;&|()#$]|\\.|'[^']*'?|\"(?:[^\"\\]|\\.)*+\"?|\$(?!\()|(?<=\S)\#)+)
    |(?P<other>.)
    """
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\((?!\()((?:[^()]|\([^()]*\))*)\)?|`([^`]*)`?")
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "in"})
_PREFIXES = frozenset(
    {"sudo", "time", "exec", "nohup", "env", "then", "do", "else", "!", "eval", "-E"}
)
_AMD_TEST = re.compile(r"(?i)rocm|\bhip|hipcc|\bamd|amdgpu|gfx\d|/dev/kfd")
_NVIDIA_TEST = re.compile(r"(?i)cuda|nvidia|nvcc")
_NEGATED = re.compile(r"!|-z\b|\bnot\b|-eq\s+0")
_ASKS = re.compile(r"command\s+-v|\bwhich\b|\btype\b|\bhash\b|-[xfed]\s|nvidia-smi|>\s*/dev/null")
_PROGRAMS = frozenset(
    {"nvidia-smi", "nvcc", "nsys", "ncu", "nvprof", "nvidia-ctk", "cuda-memcheck"}
    | {"compute-sanitizer", "nvidia-persistenced", "cuobjdump", "nvdisasm"}
)
_ENGINES = frozenset({"docker", "podman", "nerdctl", "docker-compose", "singularity", "apptainer"})
_INSTALLERS = frozenset({"apt-get", "apt", "yum", "dnf", "microdnf", "zypper", "aptitude"})
_CUDA_PACKAGE = re.compile(
    r"(?:cuda(?:-|\Z)|libcudnn|libnccl|libcublas|libnvinfer|libcusparse|nvidia-cuda|nvidia-driver"
    r"|nvidia-container|nvidia-docker|nvidia-utils|tensorrt|datacenter-gpu-manager)\S*"
)
CONDA_CUDA = re.compile(r"(?:pytorch-cuda|cudatoolkit|cuda-\w+|cudnn|nvidia::\S+)(?:[=<>\s].*)?\Z")
_PATHS = frozenset({"LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "CPLUS_INCLUDE_PATH"})
_DEVICE_QUESTIONS = frozenset({"rocminfo", "rocm_agent_enumerator", "amdgpu-arch"})
_WITH_VALUE = frozenset(
    {"-r", "--requirement", "-c", "--constraint", "--no-install-package"}
    | {"--no-build-isolation-package", "-i", "--index-url", "-f", "--extra-index-url"}
    | {"--find-links", "-t", "--target", "--python", "--prefix", "--root", "-e"}
    | {"--editable", "--default-index", "--index"}
)

_WHOLE = frozenset({"-r", "--requirement", "-e", "--editable"})
_WHOLE_ARGUMENT = re.compile(
    r"(?:-r|--requirement=|--editable=|-e)[^\s-]|\.{1,2}/?(?:\[[\w,-]+\])?\Z|\.{1,2}/\S+\Z"
)
_INSTALLER = re.compile(r"pip[\d.]*|uv|py(?:thon)?[\d.]*(?:_?(?:bin|exe|executable))?|pip_?\w*")
_INDEXES = ("-i", "--index-url", "--default-index")
_HOLDING = (
    "--no-deps",
    "--no-dependencies",
    "-c",
    "--constraint",
    "--no-install-project",
    "--no-root",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word of a command. `text` is without quotes, offsets are into the whole text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class ShellCommand:
    """A simple command: assignments before it, its words, and the sides that reach it."""

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    sides: frozenset[Side] = frozenset(SIDES)
    gate: Gate = Gate.OPEN
    depth: int = field(default=0, repr=False)

    @cached_property
    def name(self) -> str:
        return self.words[0].text.rsplit("/", 1)[-1] if self.words else ""

    @cached_property
    def texts(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words)


@dataclass(slots=True, kw_only=True)
class _Block:
    """An open `if` or `case`: its condition while it is read, then the sides of the current arm."""

    condition: str = ""
    reading: bool = True
    is_case: bool = False
    sides: frozenset[Side] = frozenset(SIDES)
    left: frozenset[Side] = frozenset(SIDES)
    gate: Gate = Gate.OPEN


def read_commands(text: str, offset: int = 0, depth: int = 0) -> Iterator[ShellCommand]:
    """Yield the simple commands of shell text, those inside `$(...)` too.

    `offset` is the place of the text in its file.
    """
    blocks: list[_Block] = []
    before = ""
    for split_words, ending in _split(text, offset):
        words = split_words
        while words and words[0].text in _KEYWORDS:
            _keyword(blocks, words[0].text)
            words = words[1:]
        _case(blocks, words, before, ending)
        before = ending
        if not words:
            continue
        if blocks and blocks[-1].reading:
            blocks[-1].condition += " ".join(word.text for word in words) + " "
        yield from _commands_of(words, ending, blocks, depth)


def _split(text: str, offset: int) -> Iterator[tuple[list[Word], str]]:
    words: list[Word] = []
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "word":
            start, end = token.span()
            words.append(Word(text=_unquoted(token[0]), start=start + offset, end=end + offset))
        elif kind == "break":
            yield words, token[0]
            words = []
    yield words, "\n"


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return re.sub(r"""(?<!\\)['"]""", "", text).replace("\\\n", "")


def _keyword(blocks: list[_Block], word: str) -> None:
    if word == "if":
        blocks.append(_Block())
    elif word == "fi" and blocks:
        blocks.pop()
    elif blocks and word == "then" and blocks[-1].reading:
        _enter_arm(blocks[-1])
    elif blocks and word in {"elif", "else"}:
        block = blocks[-1]
        block.sides, block.gate = block.left, Gate.OPEN
        block.reading, block.condition = word == "elif", ""


def _case(blocks: list[_Block], words: list[Word], before: str, ending: str) -> None:
    """Track `case "$VERSION" in`, `cu121)`, `;;`, `esac`, and the sides that reach each arm."""
    first = words[0].text if words else ""
    if first == "case":
        blocks.append(_Block(is_case=True))
    elif blocks and blocks[-1].is_case:
        block = blocks[-1]
        if before == ";;":
            block.sides, block.reading = block.left, True
        if first == "esac":
            blocks.pop()
        elif block.reading and ending == ")":
            block.reading = False
            nvidias = _NVIDIA_PATTERN.match(first) is not None
            block.sides = block.left & {"nvidia"} if nvidias else block.left


_NVIDIA_PATTERN = re.compile(r"(?i)[\"'*]*(?:cu\d|cuda|nvidia)")


def _enter_arm(block: _Block) -> None:
    block.reading = False
    sure = not _NEGATED.search(block.condition)
    if _AMD_TEST.search(block.condition) and sure:
        block.sides = block.left & {"amd"}
        block.left = block.left - {"amd"}
    elif _NVIDIA_TEST.search(block.condition) and sure:
        block.sides = block.left & {"nvidia"}
        block.left = block.left - {"nvidia"}
    elif _ASKS.search(block.condition):
        block.gate = Gate.AVAILABILITY


def _commands_of(
    words: list[Word], ending: str, blocks: list[_Block], depth: int
) -> Iterator[ShellCommand]:
    sides = frozenset(SIDES)
    for block in blocks:
        sides &= block.sides if not block.reading else frozenset(SIDES)
    soft = any(block.gate is not Gate.OPEN for block in blocks) or ending == "||"
    asks = bool(blocks) and blocks[-1].reading
    gate = Gate.AVAILABILITY if soft or asks else Gate.OPEN
    assignments, rest = _leading(words)
    yield ShellCommand(words=rest, assignments=assignments, sides=sides, gate=gate, depth=depth)
    for word in words if depth < 4 else ():
        for inner in _SUBSTITUTION.finditer(word.text):
            command = inner[1] or inner[2] or ""
            yield from read_commands(command, word.start + inner.start(), depth + 1)


def _leading(words: list[Word]) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """Return assignments (also of `export` and `env`) and the command after sudo and the like."""
    index = 0
    assignments: list[Word] = []
    exporting = words[0].text in {"export", "declare", "set", "setenv", "ENV", "local", "readonly"}
    if exporting:
        assignments = [word for word in words[1:] if _ASSIGNMENT.fullmatch(word.text)]
    while index < len(words) and not exporting:
        if _ASSIGNMENT.fullmatch(words[index].text):
            assignments.append(words[index])
        elif words[index].text not in _PREFIXES:
            break
        index += 1
    return tuple(assignments), tuple(words[index:])


def command_rule_matches(command: ShellCommand, *, whole: str, building: bool) -> Iterator[Match]:
    """Yield the matches in one command.

    `whole` is the file's text; `building` is true if the command runs in an image build.
    """
    for word in command.assignments:
        match = _ASSIGNMENT.fullmatch(word.text)
        if match is not None:
            yield from variable_rule_matches(match[1], match[2], word, command=command)
    if not command.words:
        return
    yield from _programs(command, building=building)
    yield from _containers(command)
    yield from _packages(command)
    yield from _installs(command, whole)
    yield from _copies(command)
    for word in command.words:
        yield from word_rule_matches(word, command)
    yield from option_rule_matches(command.words, command)


def _see(
    rule: str, word: Word, command: ShellCommand | None, what: str = "", shift: int = 0
) -> Match:
    return Match(
        rule=rule,
        start=word.start,
        end=word.end,
        what=what or word.text,
        shift=shift,
        sides=command.sides if command is not None else frozenset(SIDES),
        gate=command.gate if command is not None else Gate.OPEN,
    )


def variable_rule_matches(
    name: str, value: str, word: Word, *, command: ShellCommand | None = None
) -> Iterator[Match]:
    """Yield the matches in `NAME=value`, in ENV, export, compose's environment and CI's env."""
    if name in _PATHS and "/cuda" in value:
        yield _see("CT406", word, command, what=f"{name}={value}"[:80])
    elif name.startswith("TORCHINDUCTOR_MAX_AUTOTUNE") and value not in {"0", ""}:
        yield _see("PY002", word, command, what=name)
    if ALLOCATOR.search(value):
        for rule, snippet, shift in allocator_rules(value):
            yield _see(rule, word, command, what=snippet, shift=shift)
    if "\n" not in value and CUDA_INDEX.search(value):
        yield _see("DP314", word, command, what=value[:80])
    for setting_use in read_setting(name, value.strip("\"' ")):
        yield _see(setting_use.rule, word, command, what=setting_use.what)


def option_rule_matches(
    words: Sequence[Word], command: ShellCommand | None = None
) -> Iterator[Match]:
    """Yield settings in options: `--mode x`, `--mode=x`, and `model.mode=x` of Hydra."""
    for index, word in enumerate(words):
        name, equals, value = word.text.partition("=")
        if not equals and word.text.startswith("--") and index + 1 < len(words):
            value = words[index + 1].text
        if value and re.fullmatch(r"-{0,2}\+{0,2}[A-Za-z_][\w.-]*", name):
            for setting_use in read_setting(name.lstrip("+"), value.strip("\"'")):
                yield _see(setting_use.rule, word, command, what=setting_use.what)


def word_rule_matches(word: Word, command: ShellCommand | None) -> Iterator[Match]:
    """Yield flags, indexes and images in one word."""
    if "-" in word.text or "arch" in word.text:
        nvccs = command is not None and any("nvcc" in word.text.lower() for word in command.words)
        for rule, flag in compiler_flag(word.text):
            if nvccs or flag != "--threads":  # many a program has an option of this name
                yield _see(rule, word, command, what=flag)
    if "://" in word.text and CUDA_INDEX.search(word.text):
        yield _see("DP314", word, command, what=word.text[:80])


def _programs(command: ShellCommand, *, building: bool) -> Iterator[Match]:
    if command.name in _PROGRAMS:
        yield _see("SH501", command.words[0], command, what=command.name)
    if building and command.name in _DEVICE_QUESTIONS:
        yield _see("BL204", command.words[0], command, what=command.name)


def _containers(command: ShellCommand) -> Iterator[Match]:
    if command.name not in _ENGINES and "docker" not in command.texts:
        return
    for index, word in enumerate(command.words):
        following = command.texts[index + 1] if index + 1 < len(command.words) else ""
        gpus = word.text in {"--gpus", "--nv"} or word.text.startswith("--gpus=")
        runtime = "--runtime=nvidia" in {word.text, f"{word.text}={following}"}
        if gpus or runtime:
            yield _see("CT402", word, command, what=word.text)
        variable = _ASSIGNMENT.fullmatch(following)
        if word.text in {"-e", "--env"} and variable is not None:
            argument = command.words[index + 1]
            name, value = variable.groups()
            yield from variable_rule_matches(name, value, argument, command=command)
        if NVIDIA_IMAGE.fullmatch(word.text) and not word.text.startswith(("/", ".", "-")):
            yield _see("CT401", word, command)


def _packages(command: ShellCommand) -> Iterator[Match]:
    if command.name in _INSTALLERS and "install" in command.texts:
        for word in command.words:
            if _CUDA_PACKAGE.match(word.text):
                yield _see("CT405", word, command)
    if command.name in {"conda", "mamba", "micromamba"}:
        for word in command.words:
            if CONDA_CUDA.match(word.text):
                yield _see("DP317", word, command)


def _installs(command: ShellCommand, text: str) -> Iterator[Match]:
    """Yield the packages of `pip install`, `uv pip install`, `uv sync`, and possible others.

    AMD SMI's package, which ROCm brings as source, needs nothing.
    """
    texts = command.texts
    syncs = command.name == "uv" and "sync" in texts
    poetry = command.name == "poetry" and "install" in texts
    if not syncs and "install" not in texts:
        return
    if not poetry and _INSTALLER.fullmatch(command.name.strip("${}").lower()) is None:
        return
    verb = texts.index("sync" if syncs and "install" not in texts else "install")
    arguments = command.words[verb + 1 :]
    befores = ("", *texts[verb + 1 :])
    yield from _named_packages(command, befores, arguments)
    whole = (
        syncs
        or poetry
        or any(
            before in _WHOLE or (before not in _WITH_VALUE and _WHOLE_ARGUMENT.match(word.text))
            for before, word in zip(befores, arguments, strict=False)
        )
    )
    first, last = command.words[0], command.words[-1]
    bare = _AMD_SMI.search(text, max(0, first.start - _BESIDE), last.end) is not None
    if whole and not bare and not any(word.text.startswith(_HOLDING) for word in arguments):
        stretch = Word(text=" ".join(texts)[:80], start=first.start, end=last.end)
        yield _see("DP318", stretch, command)
        yield _see("HP609", stretch, command)


_AMD_SMI = re.compile(r"amd_?smi(?![\w-])")
_BESIDE = 60


def _named_packages(
    command: ShellCommand, befores: tuple[str, ...], arguments: tuple[Word, ...]
) -> Iterator[Match]:
    """Yield requirements on the command line. With an index of its own, torch comes from there."""
    indexed = any(word.text.startswith(_INDEXES) or "whl/rocm" in word.text for word in arguments)
    for before, word in zip(befores, arguments, strict=False):
        if before in _WITH_VALUE or word.text.startswith("-"):
            continue
        for required in read_requirement(word.text):
            if not (indexed and required.rule == "DP302"):
                yield _see(required.rule, word, command, shift=required.shift)


def _copies(command: ShellCommand) -> Iterator[Match]:
    """Yield `cp -r ours/* .venv/lib/python3.11/site-packages/transformers/`."""
    copies = command.name in {"cp", "rsync", "install", "mv"} and len(command.words) > 2
    if copies and "site-packages/" in command.words[-1].text:
        yield _see("PY060", command.words[-1], command)


_BESIDE_PACKAGE = re.compile(r"\b\w+\.__file__[^\n]{0,200}\bcp\s+-\w+")


def script_rule_matches(
    text: str, offset: int = 0, *, whole: str, building: bool = False
) -> Iterator[Match]:
    """Yield the matches in shell text at `offset` of the text `whole`."""
    for command in read_commands(text, offset):
        yield from command_rule_matches(command, whole=whole, building=building)
    for match in _BESIDE_PACKAGE.finditer(text) if "__file__" in text else ():
        start, end = match.start() + offset, match.end() + offset
        yield Match(rule="PY060", start=start, end=end, what=match[0][:80])
