"""Values to start a test from; each test names only what it is about."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from warpfront.images.built import CREATED, REVISION, BuiltImage, ResolvedBase
from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, RELAXED
from warpfront.matrix.cell import (
    BaseSource,
    Cell,
    Pin,
    WheelIndex,
)
from warpfront.matrix.language import Base, Patch, Project
from warpfront.matrix.release_channels import Channel
from warpfront.matrix.scaffold import new_project
from warpfront.release.admission import Evidence
from warpfront.report.rows import ReportRow
from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.verify.verdict import sealed
from warpfront.wheels.lock.values import LockedWheel, PatchedWheel, WheelLock

A_PROJECT = Project(
    name="demo",
    source="https://example.test/demo",
    licenses="Apache-2.0",
    repository="registry.test/demo",
)

A_BASE = Base(
    name="debian-12",
    reference="docker.io/library/python:3.11-slim-bookworm",
    digest="sha256:" + "ab" * 32,
    python="3.11",
    interpreter="python3.11",
    glibc="2.36",
)

A_RESOLVED_BASE = ResolvedBase(
    name="debian-12",
    source=BaseSource.REGISTRY,
    reference=A_BASE.pinned,
    identity=A_BASE.digest,
)

_A_CELL = Cell(
    id="cpu-x86_64-py311-torch2130-torch",
    project="warpfront",
    line=1,
    vendor="cpu",
    toolkit=None,
    targets=("x86-64",),
    machine="x86_64",
    python="3.11",
    torch="2.13.0",
    image="torch",
    base=A_BASE,
    index=WheelIndex(name="cpu", url="https://download.pytorch.org/whl/cpu"),
    stack=(Pin(name="torch", version="2.13.0+cpu"),),
    requirements=("pip",),
    requirements_file=None,
    compiler=None,
    template="torch",
    parent=None,
    tag="2.13.0-cpu-py3.11",
    title="PyTorch for CPUs",
)


def a_cell(**changes: Any) -> Cell:
    return dataclasses.replace(_A_CELL, **changes)


def a_child(parent: Cell, image: str = "serve", **changes: Any) -> Cell:
    """A cell built on `parent`'s image."""
    facts: dict[str, Any] = {
        "id": parent.id.removesuffix(parent.image) + image,
        "image": image,
        "template": image,
        "parent": parent.id,
    }
    return dataclasses.replace(parent, **(facts | changes))


def a_wheel(name: str = "torch", version: str = "2.13.0+cpu", **changes: Any) -> LockedWheel:
    wheel = LockedWheel(
        name=name,
        version=version,
        filename=f"{name}-{version}-py3-none-any.whl",
        sha256=(name.encode().hex() * 64)[:64],
        size_bytes=1000,
        index="https://pypi.org/simple",
    )
    return dataclasses.replace(wheel, **changes)


def a_lock(cell: Cell | None = None, *wheels: LockedWheel) -> WheelLock:
    return WheelLock(
        cell_id=(cell or _A_CELL).id,
        python="3.11",
        inputs_digest="0" * 64,
        wheels=wheels or (a_wheel(), a_wheel("pip", "26.2.1")),
    )


A_PATCH = Patch(
    package="lmcache",
    version="0.3.9",
    file="patches/hpu.patch",
    sha256="ab" * 32,
    reason="for Gaudi",
    upstream="https://example.test/lmcache/pull/1066",
)


def a_patched_lock(*wheels: LockedWheel) -> WheelLock:
    """A lock one of whose wheels is not as its authors published it."""
    original = a_wheel("lmcache", "0.3.9")
    wheels = (*wheels, a_wheel("lmcache", "0.3.9+wf.p12ab34cd"))
    patched = PatchedWheel(package="lmcache", patches=(A_PATCH,), original=original)
    return dataclasses.replace(a_lock(None, *wheels), patched=(patched,))


def a_built_image(cell: Cell | None = None, **changes: Any) -> BuiltImage:
    built = BuiltImage(
        cell_id=(cell or _A_CELL).id,
        reference=(cell or _A_CELL).local_reference,
        image_id="sha256:" + "cd" * 32,
        content_hash="ef" * 32,
        size_bytes=1_000_000,
        base=A_RESOLVED_BASE,
        reused=False,
        seconds=12.0,
        log="build.log",
    )
    return dataclasses.replace(built, **changes)


def a_report_row(**changes: Any) -> ReportRow:
    facts: dict[str, Any] = {
        "cell_id": _A_CELL.id,
        "target": "x86_64",
        "lock": "fresh",
        "relaxed": (),
        "build": "built",
        "verify": "passed",
        "check_options": "",
        "size_bytes": 1000,
        "build_seconds": 2.0,
        "verify_seconds": 3.0,
        "checks_passed": 4,
        "checks": 4,
        "reason": "",
    }
    return ReportRow(**{**facts, **changes})


def a_check(outcome: Outcome = Outcome.PASSED, **changes: Any) -> CheckResult:
    check = CheckResult(
        session="load", name="torch imports", outcome=outcome, reason="", seconds=0.1
    )
    return dataclasses.replace(check, **changes)


class _Word(str):
    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)


def an_outcome(word: str) -> Outcome:
    """An outcome that this version may have no name for."""
    return cast("Outcome", _Word(word))


def a_verification(*checks: CheckResult, **changes: Any) -> Verification:
    checks = checks or (a_check(),)
    verification = Verification(
        cell_id=_A_CELL.id,
        target="x86-64",
        where="image",
        image_id="sha256:" + "cd" * 32,
        content_hash="ef" * 32,
        sessions=tuple(dict.fromkeys(check.session for check in checks)),
        checks=checks,
        seconds=3.0,
    )
    return dataclasses.replace(verification, **changes)


FACTS = {"torch": "2.13.0+cpu", "toolkit": "", "python": "3.11", "machine": "x86_64"}
FULL = {"quick": False, "profile": "strict", "seeds": 1}


def a_channel(**changes: Any) -> Channel:
    channel = Channel(
        name="release",
        repository="registry.test/demo",
        tags=("{torch}-{toolkit}-py{python}-{content}",),
        aliases=(),
        sessions=("load",),
        targets="all",
        max_age_hours=168,
    )
    return dataclasses.replace(channel, **changes)


def some_evidence(
    cell: Cell | None = None,
    *checks: CheckResult,
    labels: dict[str, str] | None = None,
    effort: object = FULL,
    facts: object = FACTS,
    ended: str = "2026-11-22T11:00:00+00:00",
    **changes: Any,
) -> Evidence:
    """An image that was verified on each of its targets; `changes` are the verifications'."""
    cell = cell or _A_CELL
    built = a_built_image(cell)
    environment = {"check_options": effort, "facts": facts}
    verifications = {}
    for target in cell.targets:
        said = {"cell_id": cell.id, "target": target, "environment": environment, **changes}
        verifications[target] = sealed(a_verification(*checks, **said), ended=ended)
    return Evidence(
        cell=cell,
        labels={
            CONTENT_HASH: built.content_hash,
            BASE_SOURCE: "registry",
            RELAXED: "",
            CREATED: "2026-11-20T10:00:00+00:00",
            REVISION: "0123456789abcdef" * 2,
            **(labels or {}),
        },
        identities=frozenset({built.image_id}),
        verifications=verifications,
    )


def key_of_parts(_packages: Iterable[Path], parts: Mapping[str, object]) -> str:
    """Stand in for `attempt_key` where the code of the checks does not change: the real function
    reads 900 files of the tree for each target, and has a test of its own.
    """
    return json.dumps(parts, sort_keys=True, default=str)


def make_project(folder: Path) -> None:
    """A project with one CPU row, in `folder`."""
    edit = new_project(
        folder, name="my-images", vendors="cpu==2.13.0", base="debian-12", registry="ghcr.io/my"
    )
    list(edit.write(folder, dry_run=False))
