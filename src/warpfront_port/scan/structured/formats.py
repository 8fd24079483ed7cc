"""The engine for dependencies, containers, builds and scripts: neither Python nor C. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Literal

from warpfront_port.scan.findings import Context, Match, SourceText
from warpfront_port.scan.reach import MANIFESTS
from warpfront_port.scan.structured.cmake import cmake_rule_matches
from warpfront_port.scan.structured.command_rules import script_rule_matches
from warpfront_port.scan.structured.dependencies import (
    cfg_rule_matches,
    requirements_rule_matches,
    toml_rule_matches,
)
from warpfront_port.scan.structured.dockerfile import dockerfile_rule_matches
from warpfront_port.scan.structured.makefile import make_rule_matches
from warpfront_port.scan.structured.pairs import pair_rule_matches
from warpfront_port.scan.structured.yaml_documents import yaml_rule_matches
from warpfront_port.scan.words import is_aside

Kind = Literal[
    "toml", "requirements", "cfg", "yaml", "dockerfile", "cmake", "shell", "make", "json", "lines"
]

_DOCKERFILE = re.compile(r"(?i)(?:.*\.)?(?:dockerfile|containerfile)(?:[._-].*)?\Z")
_REQUIREMENTS = re.compile(
    r"(?i)(?:.*[-_.])?(?:requirements?|constraints?)(?:[-_.].*)?\.(?:txt|in)\Z"
)
_LOCKS = re.compile(r"(?i)pylock\..*|.*lock\.(?:ya?ml|json)|.*\.lock")
# Names and endings of files, by their kind.
_NAMES: Mapping[Kind, str] = {
    "toml": ".toml Pipfile",
    "cfg": "setup.cfg",
    "yaml": ".yml .yaml",
    "shell": ".sh .bash .sbatch .slurm",
    "cmake": ".cmake CMakeLists.txt",
    "make": ".mk Makefile GNUmakefile Makefile.am Makefile.in makefile",
    "json": ".json",
    "lines": ".ini .env .service",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def kind_of(path: PurePosixPath) -> Kind | None:
    """Return the kind of a file by its name; None for one that this engine does not read.

    Lock files are no source: they record an installer's choice.
    """
    name = path.name
    if _LOCKS.fullmatch(name):
        return None
    if _DOCKERFILE.match(name) and path.suffix not in {".md", ".j2", ".py"}:
        return "dockerfile"
    if _REQUIREMENTS.match(name) or (
        path.suffix == ".txt" and "requirements" in {part.lower() for part in path.parts[:-1]}
    ):
        return "requirements"
    return _KINDS.get(name) or _KINDS.get(path.suffix)


def reads(path: PurePosixPath) -> bool:
    """Return true if this engine reads files of this name."""
    return kind_of(path) is not None


def rule_matches(source: SourceText, context: Context) -> Iterator[Match]:
    """Yield the matches of every rule in `source`."""
    for match in _read(source):
        command = source.text[match.start : match.end] if match.rule == "DP318" else ""
        if not command or not _brings_no_torch(command, source.text, context.torchless):
            yield match


def _brings_no_torch(command: str, text: str, torchless: frozenset[str]) -> bool:
    """Return true if nothing in an install step requires torch.

    The step may install files of requirements, with a path in `text`, and the project itself.
    """
    files = _LISTED.findall(command)
    folder = _FOLDER.search(command)
    if folder is not None and any(f"{folder[1]}/{name}" in torchless for name in MANIFESTS):
        return True
    has_project = _PROJECTS.search(command) is not None
    if has_project and "." not in torchless:
        return False
    return (has_project or bool(files)) and all(
        _is_torchless(file, text, torchless) for file in files
    )


def _is_torchless(listed: str, text: str, torchless: frozenset[str]) -> bool:
    name = listed.rpartition("/")[2]
    if name in torchless:
        return True
    sources = [path for path in _PATHS.findall(text) if path.rpartition("/")[2] == name]
    named = {path for path in sources if not path.startswith("/")}
    return bool(named) and {path.removeprefix("./") for path in named} <= torchless


_PATHS = re.compile(r"(?<!\S)[\w./-]+\.(?:txt|in|toml)(?!\S)")
_LISTED = re.compile(r"(?:-r|--requirement=|\s)([\w./-]+\.(?:txt|in|toml))(?![\w.])")
_PROJECTS = re.compile(r"\s(?:-e|--editable|\.{1,2}/?(?:\[[^\]]*\])?)(?:[\s=]|\Z)")
_FOLDER = re.compile(r"\s\./([\w/-]+?)/?(?:\[[^\]]*\])?(?:\s|\Z)")


def torchless(requirements: Mapping[str, str]) -> frozenset[str]:
    """Return the paths of requirement files without torch and without packages known to need it.

    Their names are included where all files of a name are so. "." is included where every one is,
    apart from those of examples and the like, and there is a manifest.
    """
    needing = {path for path, text in requirements.items() if _NEEDS.search(text)}
    names = {path.rpartition("/")[2] for path in needing}
    paths = set(requirements) - needing
    paths |= {path.rpartition("/")[2] for path in paths} - names
    alone = all(is_aside(PurePosixPath(path)) for path in needing)
    alone = alone and not requirements.keys().isdisjoint(MANIFESTS)
    return frozenset(paths | ({"."} if alone else set()))


def lists_requirements(path: PurePosixPath) -> bool:
    """Return true if a file of this name lists requirements of a project."""
    return kind_of(path) == "requirements" or path.name in MANIFESTS


_NEEDS = re.compile(
    r"(?im)(?:^\s*(?:-r|-e|\.|git\+|https?:)|(?:^|[\"'=])\s*(?:[\w-]*torch|accelerate|bitsandbytes|deepspeed"
    r"|diffusers|[\w-]*lightning|fairscale|flash|openai-whisper|peft|sentence|timm|transformers|triton"
    r"|trl|ultralytics|vllm|xformers))"
)


def _read(source: SourceText) -> Iterator[Match]:
    kind = kind_of(source.path)
    text = source.text
    readers: Mapping[Kind, Callable[[str], Iterator[Match]]] = {
        "toml": partial(toml_rule_matches, installs=source.path.name in _INSTALLED),
        "cfg": cfg_rule_matches,
        "yaml": yaml_rule_matches,
        "dockerfile": dockerfile_rule_matches,
        "cmake": cmake_rule_matches,
        "make": make_rule_matches,
        "json": partial(pair_rule_matches, form="json"),
        "lines": partial(pair_rule_matches, form="lines"),
        "requirements": partial(requirements_rule_matches, extra=_purpose(source.path)),
        "shell": partial(script_rule_matches, whole=text),
    }
    if kind is not None:
        yield from readers[kind](text)


_INSTALLED = frozenset({"pyproject.toml", "Pipfile"})


def _purpose(path: PurePosixPath) -> str:
    """Return the purpose in a file's name: cuda for `requirements-cuda.txt`, like an extra."""
    match = re.search(
        r"(?i)(cuda|nvidia|gpu|cu\d{2,3}|dev|docs?|readthedocs|lint|typing|mypy)", path.stem
    )
    return match[1] if match is not None else ""
