"""Provenance of an image, as SLSA provenance (https://slsa.dev/spec/v1.0/provenance). It is our
own, from plan, lock and build, so no build argument, host or path gets into it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpfront.matrix.cell import Cell
from warpfront.release.sbom.parts import Bill
from warpfront.release.statements.statement import (
    Statement,
    StatementError,
    read_as,
    statement_text,
)
from warpfront.wheels.lock.values import WheelLock

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#build-v1"
_SHA256 = "sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """An input of an image: its purl or address, and its digest by one algorithm (`sha256`,
    `gitCommit`), "" where it is unknown.
    """

    uri: str
    algorithm: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """The build of an image. `builder` is the address of the CI workflow (else the project's),
    and `invocation` that of its run, "" outside CI. `asked` are the fields of its cell, `created`
    is the moment of the image.
    """

    cell_id: str
    builder: str
    created: str
    lock: str
    content_hash: str
    asked: tuple[tuple[str, tuple[str, ...]], ...]
    dependencies: tuple[Dependency, ...]
    invocation: str = ""


def making_of(
    cell: Cell,
    lock: WheelLock,
    bill: Bill,
    *,
    builder: str,
    content_hash: str,
    revision: str,
    uv: str,
    invocation: str = "",
) -> BuildRecord:
    """Return the build record from cell, lock and bill. `revision` is the commit that it was
    made from, `uv` the version of the installer of the wheels.
    """
    fields = {
        "vendor": (cell.vendor,),
        "toolkit": (str(cell.toolkit),) if cell.toolkit else (),
        "targets": cell.targets,
        "machine": (cell.machine,),
        "python": (cell.python,),
        "torch": (cell.torch,),
        "image": (cell.image,),
        "tag": (cell.tag,),
        "stack": tuple(map(str, cell.stack)),
    }
    return BuildRecord(
        cell_id=cell.id,
        builder=builder,
        created=bill.created,
        lock=lock.digest,
        content_hash=content_hash,
        asked=tuple(sorted(fields.items())),
        dependencies=tuple(_dependencies(bill, revision=revision, uv=uv)),
        invocation=invocation,
    )


def provenance_text(making: BuildRecord, *, name: str, digest: str) -> str:
    """Return the statement about the image `name` with `digest`."""
    predicate = _predicate(making)
    return statement_text(
        Statement(name=name, digest=digest, predicate_type=PREDICATE, predicate=predicate)
    )


def read_provenance_statement(payload: bytes, *, digest: str) -> BuildRecord:
    """Return how the image with `digest` was made, by our statement. Raises `StatementError`."""
    return read_as(payload, _making, _predicate, digest=digest, predicate_type=PREDICATE)


def _predicate(making: BuildRecord) -> dict[str, Any]:
    run = {"invocationId": making.invocation} if making.invocation else {}
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"cell": making.cell_id, **dict(making.asked)},
            "internalParameters": {"lock": making.lock, "contentHash": making.content_hash},
            "resolvedDependencies": [
                {
                    "uri": dependency.uri,
                    **(
                        {"digest": {dependency.algorithm: dependency.digest}}
                        if dependency.digest
                        else {}
                    ),
                }
                for dependency in making.dependencies
            ],
        },
        "runDetails": {
            "builder": {"id": making.builder},
            "metadata": {"finishedOn": making.created, **run},
        },
    }


def _making(predicate: Mapping[str, Any]) -> BuildRecord:
    built, run = predicate["buildDefinition"], predicate["runDetails"]
    internal, metadata = built["internalParameters"], run["metadata"]
    fields = {key: value for key, value in built["externalParameters"].items() if key != "cell"}
    invocation = str(metadata.get("invocationId", ""))
    if invocation and not invocation.startswith(("https://", "http://")):
        raise StatementError(f"{invocation[:80]!r} is no address of a run")
    return BuildRecord(
        cell_id=str(built["externalParameters"]["cell"]),
        builder=str(run["builder"]["id"]),
        created=str(metadata["finishedOn"]),
        lock=str(internal["lock"]),
        content_hash=str(internal["contentHash"]),
        asked=tuple((key, tuple(map(str, value))) for key, value in sorted(fields.items())),
        dependencies=tuple(
            Dependency(uri=str(entry["uri"]), algorithm=str(algorithm), digest=str(digest))
            for entry in built["resolvedDependencies"]
            for ((algorithm, digest),) in [entry.get("digest", {"": ""}).items()]
        ),
        invocation=invocation,
    )


def _dependencies(bill: Bill, *, revision: str, uv: str) -> Iterator[Dependency]:
    """Return the inputs and tools of the build: the sources, the base, each wheel, and uv."""
    if revision:
        yield Dependency(uri=f"git+{bill.source}", algorithm="gitCommit", digest=revision)
    base = bill.base.version.removeprefix(_SHA256)
    yield Dependency(uri=bill.base.purl, algorithm="sha256", digest=base)
    for part in bill.parts:
        if part.kind == "wheel":
            yield Dependency(uri=part.purl, algorithm="sha256", digest=part.sha256)
    yield Dependency(uri=f"pkg:pypi/uv@{uv}")
