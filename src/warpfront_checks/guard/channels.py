"""The ways by which pip and uv learn of the constraints. Each has its own hole, so all are used.

What beats which: docs/guard.md.
"""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent

from .fast_path import NAME
from .places import Places
from .policy import GuardError, Policy

# As configparser reads a section's header: the text after the bracket is ignored.
_HEADER = re.compile(r"\[(?P<name>.+)\]")
_LIST = re.compile(r"constraint\s*[=:]", re.IGNORECASE)
_ADDED = ("global", "constraint")
_BUILD_TOOLS = frozenset(("pip", "setuptools", "wheel"))
_BEGIN, _END = "# warpfront-guard: begin", "# warpfront-guard: end"
# By its name the guard would be whatever `warpfront_guard` the path or start-up code offers first.
# No byte code from a PYTHONPYCACHEPREFIX: the folder may have that of another image's guard.
_BY_FILE = """\
import sys
folder, prefix = {folder!r}, sys.pycache_prefix
try:
    sys.pycache_prefix = None
    if getattr(sys.modules.get({name!r}), '__file__', None) != folder + '/__init__.py':
        for one in [*sys.modules]:
            if one.partition('.')[0] == {name!r}:
                del sys.modules[one]
        external = sys.modules['_frozen_importlib_external']
        spec = external.spec_from_file_location(
            {name!r}, folder + '/__init__.py', submodule_search_locations=[folder])
        sys.modules['_frozen_importlib']._load(spec)
    import {name}.{module}
except OSError as error:
    raise ImportError(f"No module named {name!r} that can be read: {{error}}") from None
finally:
    sys.pycache_prefix = prefix
"""
# Of the .pth and of `sitecustomize`. If a user removes the guard's files and not these, it prints a
# warning, and Python still starts.
_START_UP = """\
try:
{load}    warpfront_guard.startup.start({packages})
except Exception as error:
    text = f'warpfront guard: torch is not watched: {{error}}'
    if not os.path.isdir({home!r}):
        text = 'warpfront guard: torch is not watched: this image lacks {home}, which goes with'
        text += ' it: COPY it too, then RUN {install}'
    # Python reads the .pth files of a virtual environment twice.
    if sys.stderr and not hasattr(sys, 'warpfront_guard_told'):
        sys.warpfront_guard_told = True
        print(text, file=sys.stderr)
"""
_PROFILE = """\
# Written by warpfront-guard: a login shell starts the image's Python, too.
case ":$PATH:" in
*":{programs}:"*) ;;
*) PATH="{programs}:{interpreters}:$PATH" ;;
esac
export PATH
"""


def by_file(library: Path, module: str) -> str:
    """Return statements that import `warpfront_guard.<module>` of this library and of no other."""
    return _BY_FILE.format(folder=f"{library}/{NAME}", name=NAME, module=module)


def environment_channels(places: Places) -> dict[str, str]:
    """Return the environment that an image sets. `PYTHONNOUSERSITE` prevents a torch in a
    user's home from hiding the image's.

    Not `PIP_BUILD_CONSTRAINT`: with it pip 25.3 and newer refuse `--no-build-isolation`, which is
    how an extension is built against the image's torch.
    """
    return {
        "PIP_CONSTRAINT": f"{places.constraints} {places.needs}",
        "PYTHONNOUSERSITE": "1",
        "UV_BUILD_CONSTRAINT": str(places.overrides),
        "UV_CONSTRAINT": str(places.constraints),
    }


def given_environment() -> dict[str, str]:
    """Return the environment at this process's start: the .pth has completed it since."""
    started = sys.modules.get(f"{NAME}.startup")
    return {**os.environ, **getattr(started, "inherited", {})}


def channel_files(policy: Policy, places: Places) -> dict[Path, str]:
    """Return path -> text of every file channel, with a base's own. Raise `GuardError`."""
    pip_conf = places.pip_configuration
    try:
        pip_text = with_constraint(_theirs(pip_conf), str(places.constraints))
    except GuardError as error:
        raise GuardError(f"{pip_conf}: {error}") from None
    uv_conf = places.uv_configuration
    theirs = _without_block(_theirs(uv_conf))
    for key in uv_settings(policy):
        if any(line.split("=")[0].strip(" \t\"'") == key for line in theirs.splitlines()):
            raise GuardError(
                f"{uv_conf} already sets {key}, which TOML allows once: take it out of the base,"
                " and keep its lines in a file of constraints that UV_CONSTRAINT names"
            )
    files = {
        pip_conf: pip_text,
        # Ours first: keys of TOML's root table come before all tables.
        uv_conf: _uv_block(policy) + theirs,
        **_own_files(policy, places),
    }
    if places.sitecustomize:
        files[places.sitecustomize] = with_block(_theirs(places.sitecustomize), places)
    return files


def _own_files(policy: Policy, places: Places) -> dict[Path, str]:
    """Return path -> text of the files that no base shares."""

    def text(what: str, lines: list[str]) -> str:
        head = f"# {what}, {policy.cell or policy.title}. Written by warpfront-guard;"
        return f"{head} see its `explain`.\n" + "".join(f"{line}\n" for line in lines)

    path = _PROFILE.format(programs=places.programs, interpreters=places.interpreters)
    exports = (f'export {name}="{value}"' for name, value in environment_channels(places).items())
    return {
        places.constraints: text("Constraints of this image", constraint_lines(policy)),
        # For pip alone: with hashes uv refuses a constraint that is no `==`.
        places.needs: text("What this image's torch needs of others", needs(policy)),
        # Exact versions alone, for `uv pip install --override` with other demands.
        places.overrides: text("Overrides that keep this image's torch", pins(policy)),
        places.pth: pth_text(places),
        # Read by login shells: PATH, and the environment that an image sets.
        places.profile: path + "".join(f"{line}\n" for line in exports),
    }


def pth_text(places: Places) -> str:
    """Return the .pth file: each start puts the channels back and watches imports. `site` runs
    each line that begins with `import` by itself, so it is one line.
    """
    return f"import os, sys; exec({_start_up(places)!r})\n"


def _start_up(places: Places, packages: str = "") -> str:
    return _START_UP.format(
        home=str(places.home),
        install=installing(places),
        load=indent(by_file(places.library, "startup"), "    "),
        packages=packages,
    )


def installing(places: Places) -> str:
    """Return the command that puts the guard around a stack that was copied with its home."""
    return (
        f"PYTHONPATH={places.library} {places.interpreters}/python3 -m warpfront_guard"
        f" install --policy {places.policy}"
    )


def channel_findings(
    policy: Policy, places: Places, environment: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return (channel, what is wrong with it) for each that does not say what the policy
    demands. `environment` is what this process was started with.
    """
    findings = [
        (str(path), "not as the policy demands" if path.is_file() else "missing")
        for path, text in _own_files(policy, places).items()
        if _text_of(path) != text
    ]
    pip, ours = str(places.pip_configuration), str(places.constraints)
    try:
        sections = unguarded_sections(_text_of(places.pip_configuration), ours)
        findings += [(pip, f"[{section}] constraint lacks {ours}") for section in sections]
    except GuardError as error:
        findings.append((pip, str(error)))
    if _uv_block(policy) not in _text_of(places.uv_configuration):
        findings.append((str(places.uv_configuration), "it lacks the constraints of this image"))
    if places.sitecustomize and block(places) not in _text_of(places.sitecustomize):
        findings.append((str(places.sitecustomize), "it does not start the watch"))
    for name, value in environment_channels(places).items():
        if not set(value.split()) <= set(environment.get(name, "").split()):
            findings.append((name, f"not set to {value} in this environment"))
    return findings


def _text_of(path: Path) -> str:
    with contextlib.suppress(GuardError):
        return _theirs(path)
    return ""


def _theirs(path: Path) -> str:
    """Return the base's text of this file, to be preserved; "" if there is none. Raise
    `GuardError` if it cannot be read, and so not preserved either.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise GuardError(f"{path}: {error}") from error


def _uv_block(policy: Policy) -> str:
    settings = "".join(
        f"{name} = {json.dumps(values, indent=4)}\n" for name, values in uv_settings(policy).items()
    )
    return f"{_BEGIN}\n{settings}{_END}\n"


def _without_block(text: str) -> str:
    before, marker, rest = text.partition(f"{_BEGIN}\n")
    return before + rest.partition(f"{_END}\n")[2] if marker else text


# A virtual environment reads no .pth of the image's. It imports `sitecustomize` from the standard
# library's folder, and after every .pth, so the watch is put in front of whatever those put there.
def block(places: Places) -> str:
    program = _start_up(places, repr(str(places.site_packages)))
    return f"{_BEGIN}\nimport os, sys\n{program}{_END}\n"


def with_block(theirs: str, places: Places) -> str:
    """Return the file with our block; the base's text stays, before it."""
    base = _without_block(theirs)
    return base + ("\n" if base and not base.endswith("\n") else "") + block(places)


# A pip.conf with one more file of constraints: everything else in it stays, comments too.
def listed_constraints(text: str) -> dict[str, list[str]]:
    """Return section -> its `constraint`s. Raise `GuardError` for what pip cannot read either."""
    return {
        section: settings["constraint"].split()
        for section, settings in _settings(text).items()
        if "constraint" in settings
    }


def unguarded_sections(text: str, file: str) -> list[str]:
    """Return sections whose `constraint` lacks `file`: a command's replaces `[global]`'s."""
    listed = {"global": [], **listed_constraints(text)}
    return [section for section, files in listed.items() if file not in files]


def with_constraint(text: str, file: str) -> str:
    """Return `text` with `file` among the constraints of every section that has some, and of
    `[global]`. Raise `GuardError` if that cannot be done without touching anything else.
    """
    listed, lines = listed_constraints(text), text.splitlines()
    for section in unguarded_sections(text, file):
        setting = ["constraint =", f"    {file}"]
        headers = {m["name"]: i for i, line in enumerate(lines) if (m := _HEADER.match(line))}
        start = headers.get(section)
        if start is None:
            lines = [f"[{section}]", *setting, *([""] if lines else []), *lines]
        elif section not in listed:
            lines[start + 1 : start + 1] = setting
        else:
            after = range(start + 1, len(lines))
            lines.insert(next((i for i in after if _LIST.match(lines[i])), start) + 1, setting[1])
    result = "".join(f"{line}\n" for line in lines)
    if unguarded_sections(result, file) or _words(result, file) != _words(text, file):
        raise GuardError(f"cannot add `constraint = {file}` to its [global]: add it by hand")
    return result


def _settings(text: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise GuardError(f"pip cannot read it: {' '.join(str(error).split())}") from error
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _words(text: str, file: str) -> set[tuple[str, ...]]:
    """Return section, name and words of each setting, but for our file of constraints."""
    return {
        tuple(word for word in (section, name, *value.split()) if word != file)
        for section, named in _settings(text).items()
        for name, value in named.items()
    } - {_ADDED}


# Constraints for pip and uv: exact versions of the protected, impossible ones of sentinels.
def requirement(name: str, version: str) -> str:
    """Return the one version of a distribution. `===` where there is no local label:
    `torch==2.15.0` would also accept `2.15.0+cpu` (PEP 440, version matching).
    """
    return f"{name}{'==' if '+' in version else '==='}{version}"


def sentinel(name: str, why: str) -> str:
    """Return a version that no index has; the reason is in its label, where pip and uv print it."""
    return f"{name}==0+{why}"


def pins(policy: Policy) -> list[str]:
    return [requirement(name, version) for name, version in policy.pinned().items()]


def needs(policy: Policy) -> list[str]:
    """Return the stack's needs of others, as wide as its own metadata allows: those may move.
    Builds are checked by `verify` alone: with its constraint `python -m venv` could not bring the
    setuptools of its Python, nor pip 23 give an isolated build the one that it requires.
    """
    needed = policy.needed().items()
    return [f"{name}{accepted}" for name, accepted in needed if name not in _BUILD_TOOLS]


def constraint_lines(policy: Policy) -> list[str]:
    """Return constraints without hashes: with one, pip demands hashes of everything."""
    forbidden = [sentinel(name, why) for name, why in policy.forbidden().items()]
    return [*pins(policy), *forbidden]


def uv_settings(policy: Policy) -> Mapping[str, list[str]]:
    """Return uv's settings. Builds are constrained too: another torch gives another ABI."""
    return {
        "constraint-dependencies": constraint_lines(policy),
        "build-constraint-dependencies": pins(policy),
    }
