"""The engine for dependencies, containers, builds and scripts: neither Python nor C. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from typing import Literal

from warpfront_port.preflight.requirement_files import read_setup_cfg
from warpfront_port.scan.findings import Match, SourceText
from warpfront_port.scan.structured.cmake import cmake_rule_matches
from warpfront_port.scan.structured.command_rules import readme_rule_matches, script_rule_matches
from warpfront_port.scan.structured.commands import of_cuda_alone
from warpfront_port.scan.structured.dependencies import (
    declared_rule_matches,
    requirements_rule_matches,
    toml_rule_matches,
)
from warpfront_port.scan.structured.dockerfile import dockerfile_rule_matches
from warpfront_port.scan.structured.makefile import make_rule_matches
from warpfront_port.scan.structured.yaml_documents import yaml_rule_matches
from warpfront_port.scan.words import is_automation

Kind = Literal[
    "toml", "requirements", "cfg", "yaml", "dockerfile", "cmake", "shell", "make", "configure",
    "markdown",
]  # fmt: skip

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
    "shell": ".sh .bash .sbatch .slurm .env",
    "cmake": ".cmake CMakeLists.txt",
    "make": ".mk Makefile GNUmakefile Makefile.am makefile",
    "configure": """configure configure.ac .m4 meson.build meson_options.txt meson.options .nix .bzl
        .bazel BUILD WORKSPACE SConstruct SConscript wscript .gn .gni .pro .pri .props .vcxproj""",
    "markdown": "README.md INSTALL.md BUILD.md BUILDING.md",
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
    made = PurePosixPath(name.removesuffix(".in"))  # a template of what a build makes
    return _KINDS.get(made.name) or _KINDS.get(made.suffix)


def reads(path: PurePosixPath) -> bool:
    """Return true if this engine reads files of this name."""
    return kind_of(path) is not None


def rule_matches(source: SourceText) -> Iterator[Match]:
    """Yield the matches of every rule in `source`."""
    kind = kind_of(source.path)
    purpose = _PURPOSE.search(source.path.stem)
    readers: Mapping[Kind, Callable[[str], Iterator[Match]]] = {
        "toml": partial(toml_rule_matches, installs=source.path.name in _INSTALLED),
        "cfg": partial(declared_rule_matches, read=read_setup_cfg),
        "yaml": yaml_rule_matches,
        "dockerfile": dockerfile_rule_matches,
        "cmake": cmake_rule_matches,
        "make": make_rule_matches,
        "configure": lambda _: iter(()),
        "requirements": partial(requirements_rule_matches, extra=purpose[1] if purpose else ""),
        "shell": script_rule_matches,
        "markdown": readme_rule_matches,
    }
    matches = [*readers[kind](source.text)] if kind is not None else []
    yield from matches
    of_packages = kind in {"requirements", "cfg", "markdown"} or source.path.name in _INSTALLED
    if not (of_packages or is_automation(str(source.path))):
        yield from of_cuda_alone(source.text, matches)


_INSTALLED = frozenset({"pyproject.toml", "Pipfile"})
# The purpose in a file's name: cuda for `requirements-cuda.txt`, like an extra.
_PURPOSE = re.compile(
    r"(?i)(cuda|nvidia|gpu|cu\d{2,3}|dev|docs?|readthedocs|lint|typing|mypy|tests?|bench|example)"
)
