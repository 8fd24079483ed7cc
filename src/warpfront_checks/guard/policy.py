"""The policy of a guard: the protected distributions, as `render` or `adopt` wrote them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

SCHEMA = 1
# Subject, and what is wrong with it.
Problems = Iterator[tuple[str, str]]
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*\Z")
# What a shim requires: one exact version of one distribution.
_EXACT = re.compile(r"[a-z0-9-]+={2,3}[A-Za-z0-9.+!_-]+\Z")
_SPECIFIERS = re.compile(r"(([<>=!~]=|[<>]|===)[A-Za-z0-9.+!*_-]+(,(?=[<>=!~])|\Z))+\Z")
# A URL that can stand between spaces or quotes of a command, and on a terminal.
_INDEX = re.compile(r"(?:(?!['\"`$\\])[\x21-\x7e])*\Z")
# Of each field that maps names to texts: the form of these, and what it is called.
_FORMS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("protected", "companions", "sentinels"), (_VERSION, "version")),
    "needs": (_SPECIFIERS, "version specifier"),
    "relaxed": (),
}


class GuardError(Exception):
    """The guard cannot do its work; the message names problem, file and next step."""


@dataclass(frozen=True, kw_only=True)
class Shim:
    """A distribution without files of its own that answers for another one's name: `triton` on
    ROCm, which `requires` the real one (`pytorch-triton-rocm==3.4.0`).
    """

    name: str
    version: str
    requires: str


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The protected distributions, by normalized names.

    `protected` are in the image, at these versions. `companions` are not in the image, and only
    this version fits its torch. `sentinels` must never arrive: name -> reason, in words that fit a
    local version label. `needs` are the requirements of the protected, name -> specifier, written
    when they are sealed. `adopt` are fnmatch patterns: distributions of the image that match are
    protected as found. `relaxed` maps a name to the user's reason. `index` is the origin of the
    torch stack, "" if it came with the base.
    """

    cell: str
    title: str
    index: str = ""
    protected: Mapping[str, str] = field(default_factory=dict)
    companions: Mapping[str, str] = field(default_factory=dict)
    sentinels: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    adopt: tuple[str, ...] = ()
    shims: tuple[Shim, ...] = ()
    relaxed: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return the policy as JSON values; `policy_from` reads them back to an equal value."""
        shims = [vars(shim) for shim in self.shims]
        fields = vars(self).items()
        values = {n: dict(value) if isinstance(value, Mapping) else value for n, value in fields}
        return {"schema": SCHEMA, **values, "adopt": list(self.adopt), "shims": shims}

    def pinned(self) -> dict[str, str]:
        """Return every name with the one version it may have, with shims, without relaxed ones."""
        pins = {**self.companions, **self.protected}
        pins |= {shim.name: shim.version for shim in self.shims}
        return self._held(pins)

    def forbidden(self) -> dict[str, str]:
        """Return the sentinels that are still in force."""
        return self._held(self.sentinels)

    def needed(self) -> dict[str, str]:
        """Return the stack's needs of distributions that no pin fixes: name -> specifier."""
        fixed = {**self.pinned(), **self.forbidden()}
        return {name: text for name, text in self._held(self.needs).items() if name not in fixed}

    def is_relaxed(self, name: str) -> bool:
        """Return whether this name of the stack may have any version. torch takes its
        libraries, triton and companions along: another torch loads others, and has no use
        for this one's.
        """
        return name in self.relaxed or "torch" in self.relaxed

    def unrelaxed(self, names: Iterable[str]) -> list[str]:
        """Return those of these distributions that still have to be as they were."""
        return [name for name in names if not self.is_relaxed(name)]

    def _held(self, names: Mapping[str, str]) -> dict[str, str]:
        return {name: names[name] for name in self.unrelaxed(sorted(names))}

    def holds(self) -> str:
        """Return the torch that was sealed, for a sentence."""
        version = self.protected.get("torch")
        return f"torch {version}" if version else "the torch of its base"

    def relax(self, name: str, reason: str) -> Policy:
        return replace(self, relaxed={**self.relaxed, name: reason})


def normalized(name: str) -> str:
    """Return a distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@contextlib.contextmanager
def reading(path: Path, form: str) -> Iterator[None]:
    """Translate what a file is not into a `GuardError` that names the file."""
    try:
        yield
    except OSError as error:
        raise GuardError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, EOFError) as error:
        raise GuardError(f"{path}: not {form}: {error}") from error
    except GuardError as error:
        raise GuardError(f"{path}: {error}") from None


def read_policy(path: Path) -> Policy:
    """Return the policy in a file. Raise `GuardError` naming the file and what is wrong with it."""
    with reading(path, "JSON"):
        return policy_from(json.loads(path.read_text(encoding="utf-8")))


def policy_from(document: object) -> Policy:
    """Return a document's policy. Unknown fields are refused: a rule that no code reads is none."""
    if not isinstance(document, dict):
        raise GuardError("the policy must be an object")
    if document.get("schema") != SCHEMA:
        raise GuardError(f"schema is {document.get('schema')!r}, this reader knows {SCHEMA}")
    unknown = sorted(set(document) - {"schema", *Policy.__dataclass_fields__})
    if unknown:
        raise GuardError(f"unknown field {unknown[0]!r}")
    adopt, shims = _list(document, "adopt"), _list(document, "shims")
    if not all(isinstance(pattern, str) for pattern in adopt):
        raise GuardError("adopt must be a list of patterns")
    fields: dict[str, Any] = {name: document.get(name, "") for name in ("cell", "title", "index")}
    for name, value in fields.items():
        if not _is_line(value):
            raise GuardError(f"{name} must be one line of text")
    if not _INDEX.match(fields["index"]):
        raise GuardError("index must be a URL")
    fields |= {name: _texts(document, name, *form) for name, form in _FORMS.items()}
    listed: list[Shim] = []
    for value in shims:
        if not isinstance(value, dict) or set(value) != {"name", "version", "requires"}:
            raise GuardError("a shim has name, version and requires")
        versions = {"shims": {value["name"]: value["version"]}}
        name, version = _texts(versions, "shims", *_FORMS["protected"]).popitem()
        requires = value["requires"]
        if not isinstance(requires, str) or not _EXACT.match(requires):
            raise GuardError(f"shims: {name}: requires must be one exact version")
        listed.append(Shim(name=name, version=version, requires=requires))
    return Policy(**fields, adopt=tuple(adopt), shims=tuple(listed))


def _is_line(value: object) -> bool:
    """Text without a line break of any kind: it ends up in files that are read line by line."""
    return isinstance(value, str) and len(f"{value}.".splitlines()) == 1


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise GuardError(f"{name} must be a list")
    return value


def _texts(
    fields: Mapping[str, Any], name: str, form: re.Pattern[str] | None = None, what: str = ""
) -> dict[str, str]:
    """Return names with lines of text, all of a form if that is given: those end up in files that
    pip and uv parse line by line.
    """
    value = fields.get(name, {})
    if not isinstance(value, dict) or not all(_is_line(text) for text in value.values()):
        raise GuardError(f"{name} must map names to lines of text")
    for key, text in value.items():
        if not isinstance(key, str) or not _NAME.match(key):
            raise GuardError(f"{name}: {key!r} is no normalized distribution name")
        if form is not None and not form.match(text):
            raise GuardError(f"{name}: {key}: {text!r} is no {what}")
    return value
