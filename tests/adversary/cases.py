"""The cases as cases.toml says them: commands and expected outcomes are data, with one reader."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adversary.stacks import STACKS

FILE = Path(__file__).with_name("cases.toml")
TOOLS = ("pip-old", "pip", "uv")
OUTCOMES = ("intact", "refused", "detected", "relaxed")
_FIELDS = {
    "id",
    "title",
    "how",
    "install",
    "pip",
    "uv",
    "setup",
    "probe",
    "user",
    "images",
    "unset",
    "expect",
    "on",
    "says",
    "full",
    "note",
    "tools",
    "environment",
    "free",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One attack. `commands` maps a tool to a shell script, `how` is the mechanism it stands for.

    `setup` runs first, as root; `probe` is how torch is imported afterwards ("" = plainly), `user`
    a numeric id. `expect` maps `""`, an image, a tool or `image.tool` to an outcome, of which the
    most exact counts; `says` likewise to texts of which one must be in what was said.
    """

    id: str
    title: str
    how: str
    commands: Mapping[str, str]
    setup: str = ""
    probe: str = ""
    user: str = "0"
    images: tuple[str, ...] = tuple(STACKS)
    unset: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, str] = field(default_factory=dict)
    says: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    full: bool = False
    free: tuple[str, ...] = ()
    note: str = ""

    def expected(self, image: str, tool: str) -> str:
        return self.expect[_most_exact(self.expect, image, tool)]

    def texts(self, image: str, tool: str) -> tuple[str, ...]:
        """What a refusal or a detection must say, () = what every one of its kind must."""
        says = {"": (), **self.says}
        return says[_most_exact(says, image, tool)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the guard. `remove` is the script that takes it out of a container, `unset` the
    variables; `holds` are the cases, as `case/tool`, that come out worse without it: on `image`, or
    on each image ("").
    """

    id: str
    title: str
    remove: str = ""
    unset: tuple[str, ...] = ()
    image: str = ""
    holds: tuple[str, ...] = ()
    note: str = ""

    def is_of(self, image: str) -> bool:
        """Return whether the part is taken out of this image."""
        return self.image in {"", image}


def read_cases(path: Path = FILE) -> tuple[Case, ...]:
    """Every case. Raises `ValueError` for a double id, an unknown field or an outcome that is
    none.
    """
    cases = tuple(_case(fields) for fields in _document(path)["case"])
    ids = [case.id for case in cases]
    double = sorted({one for one in ids if ids.count(one) > 1})
    if double:
        raise ValueError(f"{path.name}: the id {double[0]} is there twice")
    return cases


def read_parts(path: Path = FILE) -> tuple[Part, ...]:
    """Every part of the guard that the suite takes out. Raises as `read_cases`."""
    known = {case.id for case in read_cases(path)}
    parts = tuple(
        Part(**{**fields, **{key: tuple(fields.get(key, ())) for key in ("unset", "holds")}})
        for fields in _document(path)["part"]
    )
    for part in parts:
        for held in part.holds:
            if held.partition("/")[0] not in known:
                raise ValueError(f"{path.name}: part {part.id}: there is no case {held}")
    return parts


def _document(path: Path) -> Any:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _case(fields: dict[str, Any]) -> Case:
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise ValueError(f"case {fields.get('id')}: unknown field {unknown[0]}")
    expect = {"": fields["expect"], **fields.get("on", {})}
    for key, outcome in expect.items():
        if outcome not in OUTCOMES:
            raise ValueError(f"case {fields['id']}: {outcome!r} is no outcome")
        _check_key(fields["id"], key)
    return Case(
        id=fields["id"],
        title=fields["title"],
        how=fields["how"],
        commands=_commands(fields),
        setup=fields.get("setup", ""),
        probe=fields.get("probe", ""),
        user=fields.get("user", "0"),
        images=tuple(fields.get("images", STACKS)),
        unset=tuple(fields.get("unset", ())),
        environment=fields.get("environment", {}),
        expect=expect,
        says=_texts(fields),
        full=fields.get("full", False),
        free=tuple(fields.get("free", ())),
        note=fields.get("note", ""),
    )


def _commands(fields: Mapping[str, Any]) -> dict[str, str]:
    """`install` stands for both tools' own word for it."""
    pip, uv = fields.get("pip"), fields.get("uv")
    if "install" in fields:
        pip = pip or f"pip install {fields['install']}"
        uv = uv or f"uv pip install {fields['install']}"
    found = {"pip-old": pip, "pip": pip, "uv": uv}
    chosen = fields.get("tools", TOOLS)
    return {tool: text for tool, text in found.items() if text and tool in chosen}


def _texts(fields: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    says = fields.get("says", {})
    if not isinstance(says, dict):
        says = {"": says}
    for key in says:
        _check_key(fields["id"], key)
    return {key: (text,) if isinstance(text, str) else tuple(text) for key, text in says.items()}


def _check_key(case: str, key: str) -> None:
    image, _, tool = key.rpartition(".")
    if not ({image, tool} <= {"", *STACKS, *TOOLS} and tool in {"", *STACKS, *TOOLS}):
        raise ValueError(f"case {case}: {key!r} is neither image, tool, nor image.tool")


def _most_exact(table: Mapping[str, object], image: str, tool: str) -> str:
    """The key that counts for this image and tool."""
    return next(key for key in (f"{image}.{tool}", image, tool, "") if key in table)
