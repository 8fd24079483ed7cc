"""Trials of a program of a project in an image: the modules that it did not find, from the
traceback that it ended with; the distributions that bring them, by an option, by the project's own
files, or by the table; the requirements that worked, and the image to make of them. Pure.

No name is guessed, because an index may give a module's name to another project. Only the last
exception counts, because a library may try an import and do without it. A chain of exceptions is
printed in one piece, so that "install einops" after a failed import is still that import.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from warpfront.errors import InputError
from warpfront.system.packaged import packaged_toml
from warpfront.wheels.core_metadata import requirement_name
from warpfront_port.preflight.declared import DeclaredRequirement, Kind

_LONGEST = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A missing module, or a distribution of which only the name is known (`module` ""), and
    the line that required it.
    """

    module: str
    distribution: str = ""
    path: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}" if self.path else ""

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    @property
    def name(self) -> str:
        return self.module or self.distribution

    @property
    def asked(self) -> str:
        """Return the name for `--provides`: an identifier, also for a distribution."""
        return self.top or self.distribution.replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class MissAnswer:
    """An answer to a miss: a requirement that brings it, or the refusal with its reason.

    `requirement` at its `version` keeps the image's torch, and adds `brings` more wheels.
    `folder` is the project's own folder with the module. `replaces` is the newer version that
    lacks the module.
    """

    miss: Miss
    requirement: str = ""
    said_by: str = ""
    version: str = ""
    brings: int = 0
    size_bytes: int = 0
    refusal: str = ""
    hint: str = ""
    folder: str = ""
    replaces: str = ""

    @property
    def name(self) -> str:
        """Return the normalized name of the distribution."""
        return requirement_name(self.requirement)

    @property
    def line(self) -> str:
        """Return the line of a requirements file: the chosen version, or the releases that
        have the module.
        """
        return self.requirement if self.replaces else f"{self.requirement_name}=={self.version}"

    @property
    def requirement_name(self) -> str:
        """Return the requirement with its extras, without its versions."""
        return re.split(r"[\s<>=!~;]", self.requirement, maxsplit=1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A trial of one program in one image.

    `exit_code` and `tail` are those of the last of `runs`, None where the time limit stopped it.
    `torch` is the image's; `by_hand` runs the program there without warpfront.
    """

    cell_id: str
    image: str
    torch: str
    argv: tuple[str, ...]
    runs: int
    exit_code: int | None
    tail: str
    found: tuple[MissAnswer, ...] = ()
    installed: bool = False
    by_hand: tuple[str, ...] = ()

    @property
    def works(self) -> bool:
        return self.exit_code == 0

    @property
    def said(self) -> str:
        """Return the program as one could type it, in one line."""
        text = " ".join(shlex.join(self.argv).split())
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

    @property
    def way_out(self) -> str:
        """Return the next step for a program that failed without a missing module."""
        if "Read-only file system" in self.tail:
            inside = f"cp -r . /tmp/app && cd /tmp/app && exec {shlex.join(self.argv)}"
            copy = f"run it in a copy: -- sh -c {shlex.quote(inside)}"
            return f"the project is read-only: have it write to /tmp, or {copy}"
        if "warpfront guard: torch" in self.tail:
            return "rename what the project calls torch, or leave its folder off the search path"
        if self.exit_code is None:
            return "--seconds gives it longer; fewer steps show as much"
        return "the container has no network, and the project is read-only: write to /tmp"

    @property
    def lacking(self) -> tuple[str, ...]:
        """Return the modules that the program lacked in the last run."""
        open_ones = (a for a in self.found if not (a.folder or (a.version and self.installed)))
        return tuple(answer.miss.name for answer in open_ones)

    @property
    def requirements(self) -> tuple[str, ...]:
        """Return the requirements to add to the image, at the versions of the answers."""
        return tuple(sorted(answer.line for answer in self.wanted))

    @property
    def wanted(self) -> tuple[MissAnswer, ...]:
        return tuple(answer for answer in self.found if answer.version)


def trial_text(trial: Trial, *, name: str) -> str:
    """Return the whole text; `name` is the name of the image to make."""
    times = "once" if trial.runs == 1 else f"{trial.runs} times"
    lines = [f"{trial.cell_id}, torch {trial.torch}: ran {times}: {trial.said}"]
    for answer in trial.found:
        missed = answer.miss.module or f"{answer.miss.distribution} (its metadata)"
        where = f" ({answer.miss.where})" if answer.miss.where else ""
        lines.append(f"  no {missed}{where}")
        if answer.folder:
            lines.append(f"      the project has it: {answer.folder} goes to PYTHONPATH")
        elif answer.replaces:
            package, source = answer.requirement_name, answer.said_by
            newer = f"{package} {answer.version} has, of {source}:"
            lines.append(f"      {package} {answer.replaces} has none; {newer}")
            lines.append(f"      `{answer.requirement}` in its place: torch stays")
        elif answer.version:
            more = f", with {answer.brings} wheels more" if answer.brings else ""
            description = f"{answer.requirement_name} {answer.version}, named by {answer.said_by}"
            lines.append(f"      {description}: torch stays{more}")
        else:
            lines.append(f"      {answer.refusal}")
            if answer.hint:
                lines.append(f"      hint: {answer.hint}")
    lines += _ending(trial)
    if trial.requirements:
        lines += [f"\nimages/{name}/requirements.txt:", requirements_file(trial)]
        lines += ["images: of matrix.yaml:", entry_text(trial, name)]
    return "\n".join((*lines, ""))


def requirements_file(trial: Trial) -> str:
    """Return the requirements to add to the image, each with its source."""
    head = f"# What `{trial.said}` needs beside {trial.image} with torch {trial.torch}."
    return "\n".join((head, *trial.requirements, ""))


def entry_text(trial: Trial, name: str) -> str:
    """Return the entry for `images:` of matrix.yaml."""
    paths = [answer.folder for answer in trial.found if answer.folder]
    lines = [f"  {name}:", f"    parent: {trial.image}"]
    lines += [f"    template: {name}", f"    title: {name}"]
    if trial.requirements:
        lines.append(f"    requirements: images/{name}/requirements.txt")
    if older := [answer for answer in trial.wanted if answer.replaces]:
        names = ", ".join(f"{answer.requirement_name} {answer.replaces}" for answer in older)
        lines.append(f"    # {trial.image} holds {names}, which a child cannot change: give the")
        lines.append(f"    # requirement to {trial.image} itself, in `packages:`")
    if paths:
        lines.append(f"    # the project has modules of its own in {', '.join(sorted(set(paths)))}")
    return "\n".join((*lines, ""))


def unwritten_text(trial: Trial) -> str:
    """Return the reason why no folder of an image was written."""
    if trial.works:
        return f"nothing to write: {trial.image} serves as it is, by the line above"
    return "nothing to write: no package is missing that --install could bring"


def _ending(trial: Trial) -> Iterator[str]:
    if trial.works:
        yield "it came to its end" + (" with what is named above" if trial.found else "")
        if not trial.requirements:
            yield f"{trial.image} serves as it is; without `try`, and with the project writable:"
            yield f"    {shlex.join(trial.by_hand)}"
        return
    outcome = "it was stopped at its time" if trial.exit_code is None else f"exit {trial.exit_code}"
    if trial.wanted and not trial.installed:
        yield f"{outcome}; --install tries on with what is named above"
        return
    if not trial.tail.strip():
        yield f"{outcome}; it printed nothing"
        return
    yield f"{outcome}; its last words:"
    yield from (f"    {line}" for line in trial.tail.splitlines())


_TRACEBACK = "Traceback (most recent call last):"
# torchrun, accelerate and ray put the rank before each line.
_PREFIX = re.compile(
    r"^\s*(?:\[[^\]\n]{1,40}\]:?\s?|\([^)\n]{1,40}\)\s)+(?=Traceback|\s*File |\w+(?:\.\w+)*Error)"
)
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '(?P<module>[\w.]+)'")
_NO_METADATA = re.compile(
    r"^importlib\.metadata\.PackageNotFoundError: No package metadata was found for (?P<name>\S+)"
)
_FRAME = re.compile(r'^\s*File "(?P<path>[^"\n]+)", line (?P<line>[0-9]{1,9})\b')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")


def read_misses(output: str) -> tuple[Miss, ...]:
    """Return the modules that the last traceback of `output` reports as missing, each once."""
    misses: dict[str, Miss] = {}
    frame: Mapping[str, str] = {}
    is_traceback = is_chained = False
    for line in (_PREFIX.sub("", line) for line in output.splitlines()):
        text = line.strip()
        if text == _TRACEBACK:
            misses = misses if is_chained else {}  # with those whose handling raised it
            is_traceback, is_chained = True, False
        elif text.startswith(_CHAINED):
            is_chained = True
        elif match := _FRAME.match(line):
            frame = match.groupdict()
        elif is_traceback and (match := _MISSING.match(text) or _NO_METADATA.match(text)):
            named = match.groupdict()
            miss = Miss(
                module=named.get("module", ""),
                distribution=canonicalize_name(named.get("name", "")),
                path=frame.get("path", ""),
                line=int(frame.get("line", 0)),
            )
            misses.setdefault(miss.top or miss.distribution, miss)
    return tuple(misses.values())


def provider(
    miss: Miss,
    declared_requirements: Iterable[DeclaredRequirement],
    provides: Mapping[str, str] | None = None,
) -> MissAnswer:
    """Return the requirement that brings a missing module, and its source; "" for an unknown one.

    Versions come from a line of the project's files; the first line wins where two name it.
    """
    if requirement := (provides or {}).get(miss.asked):
        return MissAnswer(miss=miss, requirement=requirement, said_by="--provides")
    declared: dict[str, DeclaredRequirement] = {}
    for line in declared_requirements:
        if line.kind is Kind.REQUIREMENT and line.requirement.url is None:
            declared.setdefault(line.name, line)
    # A program's output is not trusted: a distribution has to be known, too.
    table = packaged_toml("providers.toml", package="warpfront_port")
    same, another = table["same_name"]["names"], table["another_name"]
    if miss.top:
        usual = canonicalize_name(miss.top)
        named = another.get(miss.top) or (usual if usual in same else "")
    else:
        named = miss.distribution if miss.distribution in {*same, *another.values()} else ""
    for name in (named, canonicalize_name(miss.top or miss.distribution)):
        if name in declared:
            line = declared[name]
            return MissAnswer(miss=miss, requirement=line.text, said_by=line.where)
    said_by = "the table of modules" if named else ""
    return MissAnswer(miss=miss, requirement=named, said_by=said_by)


def read_provides(texts: Iterable[str]) -> dict[str, str]:
    """Read options of the form `module=requirement`. Raise `InputError` for any other."""
    provides = {}
    for text in texts:
        module, _, requirement = text.partition("=")
        if not module.isidentifier() or not requirement:
            raise InputError(f"--provides {text!r} is not module=distribution")
        provides[module] = requirement
    return provides
