"""The ways by which pip and uv learn of the constraints. Each has its own hole, so all are used.

What beats which: docs/guard.md.
"""

from __future__ import annotations

import configparser
import json
from collections.abc import Mapping
from pathlib import Path

from .constraints import constraints_text, overrides_text, uv_settings
from .places import Places
from .policy import GuardError, Policy

_UV_BEGIN = "# warpfront-guard: begin"
_UV_END = "# warpfront-guard: end"
# One line: `site` runs those that begin with `import`, each by itself.
_START_UP = "import warpfront_guard.startup; warpfront_guard.startup.start()"


def environment_channels(places: Places) -> dict[str, str]:
    """The environment that an image sets. `PYTHONNOUSERSITE` keeps a torch in somebody's home from
    hiding the image's.

    Not `PIP_BUILD_CONSTRAINT`: with it pip 25.3 and newer refuse `--no-build-isolation`, which is
    how an extension is built against the image's torch.
    """
    return {
        "PIP_CONSTRAINT": str(places.constraints),
        "PYTHONNOUSERSITE": "1",
        "UV_BUILD_CONSTRAINT": str(places.overrides),
        "UV_CONSTRAINT": str(places.constraints),
    }


def write_channels(policy: Policy, places: Places) -> None:
    """Write every channel that is a file. What a base has configured stays."""
    places.folder.mkdir(parents=True, exist_ok=True)
    places.constraints.write_text(constraints_text(policy), encoding="utf-8")
    places.overrides.write_text(overrides_text(policy), encoding="utf-8")
    _write_pip_configuration(places)
    _write_uv_configuration(policy, places)
    places.pth.write_text(pth_text(places), encoding="utf-8")


def pth_text(places: Places) -> str:
    """Every start of this interpreter puts the channels back and watches its imports."""
    return f"{places.library}\n{_START_UP}\n"


def channel_findings(
    policy: Policy, places: Places, environment: Mapping[str, str]
) -> list[tuple[str, str]]:
    """(channel, what is wrong with it) for each that does not say what the policy demands.
    `environment` is what this process was started with.
    """
    found = [
        (str(path), problem)
        for path, text in (
            (places.constraints, constraints_text(policy)),
            (places.overrides, overrides_text(policy)),
            (places.pth, pth_text(places)),
        )
        if (problem := _difference(path, text))
    ]
    if str(places.constraints) not in _pip_constraints(places.pip_configuration):
        found.append(
            (str(places.pip_configuration), f"[global] constraint lacks {places.constraints}")
        )
    if _uv_block(policy) not in _text_of(places.uv_configuration):
        found.append((str(places.uv_configuration), "it lacks the constraints of this image"))
    for name, value in environment_channels(places).items():
        if value not in environment.get(name, "").split():
            found.append((name, f"not set to {value} in this environment"))
    return found


def _difference(path: Path, text: str) -> str:
    if not path.is_file():
        return "missing"
    return "" if _text_of(path) == text else "not as the policy demands"


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _pip_constraints(path: Path) -> list[str]:
    """What `[global] constraint` of a pip.conf lists."""
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(_text_of(path))
    except configparser.Error:
        return []
    return parser.get("global", "constraint", fallback="").split()


def _write_pip_configuration(places: Places) -> None:
    """Add our file to `[global] constraint`, as lines, so that comments and settings stay."""
    path, ours = places.pip_configuration, str(places.constraints)
    if ours in _pip_constraints(path):
        return
    lines = _text_of(path).splitlines()
    section = next((i for i, line in enumerate(lines) if line.strip() == "[global]"), None)
    if section is None:
        lines = ["[global]", f"constraint = {ours}", *([""] if lines else []), *lines]
    else:
        theirs = _pip_constraints(path)
        lines = _without_constraint(lines, section)
        lines[section + 1 : section + 1] = [
            "constraint =",
            *(f"    {one}" for one in [*theirs, ours]),
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _without_constraint(lines: list[str], section: int) -> list[str]:
    """`lines` without the setting `constraint` of the section that starts at `section`."""
    kept, dropping, inside = [], False, False
    for number, line in enumerate(lines):
        if line.startswith("["):
            inside, dropping = number == section, False
        elif inside and line[:1].strip():
            dropping = line.split("=")[0].split(":")[0].strip() == "constraint"
        if not dropping:
            kept.append(line)
    return kept


def _uv_block(policy: Policy) -> str:
    settings = "".join(
        f"{name} = {json.dumps(values, indent=4)}\n" for name, values in uv_settings(policy).items()
    )
    return f"{_UV_BEGIN}\n{settings}{_UV_END}\n"


def _write_uv_configuration(policy: Policy, places: Places) -> None:
    """Ours first: keys of TOML's root table come before all tables."""
    path = places.uv_configuration
    theirs = _without_block(_text_of(path))
    for key in uv_settings(policy):
        if any(line.split("=")[0].strip() == key for line in theirs.splitlines()):
            raise GuardError(
                f"{path} already sets {key}, which TOML allows once: take it out of the base, and"
                f" keep its lines in a file of constraints beside {places.constraints}"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_uv_block(policy) + theirs, encoding="utf-8")


def _without_block(text: str) -> str:
    before, found, rest = text.partition(f"{_UV_BEGIN}\n")
    return before + rest.partition(f"{_UV_END}\n")[2] if found else text
