"""The rule catalogue, read from one file for each rule (`data/rules/<ID>.toml`). Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from warpfront_port.scan.findings import Consequence, Severity
from warpfront_port.scan.targets import ScanTarget

# From here on a file is for tests: a third of the text, for which a scan does not wait.
_FOR_TESTS = "\n[examples]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A construct that does not carry over to another vendor.

    `severities` maps a target or a class of targets (`gfx942`, `wave64`, `wave32`, `gfx12`, `rocm`,
    `hpu`, `cpu`) to a severity. `message` describes the problem in one line, with `{what}` for the
    matched code. `phase` (0 to 8) is the step of a port that deals with it. `structural` rules are
    about files that no condition guards, so gates do not apply to them. `of_amd` rules are about
    code that is written for AMD; AMD's own arm does not make it worse. `consequence` is the effect
    of an error. Findings of a `cause_by_name` rule have one cause for each name; those of other
    rules share one cause. Findings of a `once_a_file` rule are one for each cause and file, with
    their lines: each is a suspicion, and one decision answers all. `of_a_package` rules are about
    an import or a program: an optional one is a note. An `unless_named` rule has no finding in a
    file that names the target. `sources` are the references of the claims: public places, or files
    of torch with its version.

    `seen` are the names that are enough for a match. In Python these are `imports` (packages and
    modules, as they are imported) and `dotted` names. A dotted name is matched after imports are
    followed, and covers the names below it. `environment` matches variables that are written.
    `distributions` match requirements (normalised; a final `*` matches any ending). `calls` are
    functions, by their last or dotted name, with an `argument` whose whole text fits this
    expression; `unless` is what the module's text must not have; `shown` is the message's `{what}`.
    `settings` is an expression for names of settings, with one for the `value` (else any that means
    yes); `library` is for no name of the program's own, `own` for no other. `programs` are started
    by scripts. `options` (of compilers and linkers), `packages` (of Linux distributions),
    `conda_packages`, `images` and `indexes` are expressions for words of builds and scripts, and
    `needs` for texts in other languages; lines of an expression are joined. In C++ and CUDA they
    are whole `names`, expressions over one name (`families`) or the path in an `#include`
    (`headers`). Or a `pattern` is searched for in code. The other fields there are those of
    `NameRow`. `detectors` are the modules, below this package, with code that matches. A rule has
    at least one of names and code.
    """

    id: str
    title: str
    engines: tuple[str, ...]
    phase: int
    consequence: Consequence
    severities: Mapping[str, Severity]
    message: str
    why: str
    fix: str
    sources: tuple[str, ...]
    structural: bool = False
    of_amd: bool = False
    of_a_package: bool = False
    unless_named: bool = False
    cause_by_name: bool = False
    once_a_file: bool = False
    seen: tuple[Mapping[str, Any], ...] = ()
    detectors: tuple[str, ...] = ()

    @property
    def is_setting(self) -> bool:
        """Return true if the rule is about the value of a setting."""
        return "python.settings" in self.detectors or any("settings" in row for row in self.seen)

    def severity_for(self, target: ScanTarget) -> Severity:
        """Return the severity of the narrowest class of `target` in this rule; none if none."""
        return self.severities.get(self._class_of(target), Severity.NONE)

    def is_about_device(self, target: ScanTarget) -> bool:
        """Return true if a class of devices decides the severity, not the vendor or toolkit."""
        deciding = self._class_of(target)
        return bool(deciding) and not deciding.startswith("rocm")

    def _class_of(self, target: ScanTarget) -> str:
        return next((name for name in target.classes if name in self.severities), "")


def rules_by_name(kind: str) -> Mapping[str, str]:
    """Return rules by name, for one of the fields of `seen` that are lists of names."""
    rules = catalogue().values()
    return {name: rule.id for rule in rules for row in rule.seen for name in row.get(kind, ())}


def expressions(kind: str) -> Mapping[str, re.Pattern[str]]:
    """Return expressions by rule, for one of the fields of `seen` that are expressions."""
    rules = catalogue().values()
    texts = {rule.id: row[kind] for rule in rules for row in rule.seen if kind in row}
    return {rule: re.compile(text.replace("\n", "")) for rule, text in texts.items()}


@cache
def catalogue() -> Mapping[str, Rule]:
    """Return every rule by id, in the order of ids. Tests check the files of the catalogue."""
    folder = resources.files("warpfront_port").joinpath("data", "rules")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    rules = (read_rule(folder.joinpath(name).read_text("utf-8"), name) for name in files)
    return MappingProxyType({rule.id: rule for rule in rules})


def read_rule(text: str, name: str) -> Rule:
    """Return the rule in the file `name` of the catalogue, without its examples and its proof."""
    record = tomllib.loads(text.partition(_FOR_TESTS)[0])
    severities = {target: Severity(word) for target, word in record.pop("severity").items()}
    consequence = Consequence(record.pop("consequence"))
    fields: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in record.items()
    }
    rule = name.removesuffix(".toml")
    return Rule(id=rule, severities=severities, consequence=consequence, **fields)
