"""How an image was made, as SLSA provenance (https://slsa.dev/spec/v1.0/provenance): by us, from
plan, lock and build, so no build argument, host or path gets into it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warpfront.model import Cell, WheelLock
from warpfront.release.sbom.parts import Bill
from warpfront.release.statements.statement import (
    Fields,
    Statement,
    StatementError,
    read_statement,
    statement_text,
)

PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "https://github.com/warpfront/warpfront/blob/main/docs/sbom.md#build-v1"
_SHA256 = "sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Something that went into an image: its purl or address, and what it is by which algorithm
    (`sha256`, `gitCommit`), "" where nothing says so.
    """

    uri: str
    algorithm: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How an image was made. `builder` is the address of the CI workflow (else the project's), and
    `invocation` that of its run, "" outside CI. `asked` are the fields of its cell, `created` is
    the moment of the image.
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
) -> Making:
    """What cell, lock and bill say of a build. `revision` is the commit that it was made from, `uv`
    the version of what installed the wheels.
    """
    asked = {
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
    return Making(
        cell_id=cell.id,
        builder=builder,
        created=bill.created,
        lock=lock.digest,
        content_hash=content_hash,
        asked=tuple(sorted(asked.items())),
        dependencies=tuple(_dependencies(bill, revision=revision, uv=uv)),
        invocation=invocation,
    )


def provenance_text(making: Making, *, name: str, digest: str) -> str:
    """The statement about the image `name` with `digest`."""
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {
                "cell": making.cell_id,
                **{key: list(values) for key, values in making.asked},
            },
            "internalParameters": {"lock": making.lock, "contentHash": making.content_hash},
            "resolvedDependencies": [_document(one) for one in making.dependencies],
        },
        "runDetails": {
            "builder": {"id": making.builder},
            "metadata": {
                "finishedOn": making.created,
                **({"invocationId": making.invocation} if making.invocation else {}),
            },
        },
    }
    return statement_text(
        Statement(name=name, digest=digest, predicate_type=PREDICATE, predicate=predicate)
    )


def read_provenance_statement(payload: bytes, *, digest: str) -> Making:
    """How the image with `digest` was made, by a statement of ours. Raises `StatementError`."""
    said = read_statement(payload, digest=digest, predicate_type=PREDICATE)
    predicate = Fields(said.predicate, "predicate")
    built = Fields(predicate.value("buildDefinition", dict), "buildDefinition")
    if built.text("buildType") != BUILD_TYPE:
        raise StatementError(f"the build is of another kind: {built.text('buildType')[:200]}")
    parameters = built.value("externalParameters", dict)
    asked = Fields(parameters, "externalParameters")
    internal = Fields(built.value("internalParameters", dict), "internalParameters")
    run = Fields(predicate.value("runDetails", dict), "runDetails")
    builder = Fields(run.value("builder", dict), "builder")
    said_of_the_run = run.value("metadata", dict)
    metadata = Fields(said_of_the_run, "metadata")
    making = Making(
        cell_id=asked.text("cell"),
        builder=builder.text("id"),
        created=metadata.text("finishedOn"),
        lock=internal.text("lock"),
        content_hash=internal.text("contentHash"),
        asked=tuple((key, asked.texts(key)) for key in sorted(parameters) if key != "cell"),
        dependencies=tuple(map(_dependency, built.list("resolvedDependencies"))),
        invocation=_invocation(metadata) if "invocationId" in said_of_the_run else "",
    )
    for fields in (metadata, builder, run, internal, asked, built, predicate):
        fields.nothing_else()
    return making


def _invocation(metadata: Fields) -> str:
    """The address of a run: nothing else of the machine that built may stand there."""
    found = metadata.text("invocationId")
    if not found.startswith(("https://", "http://")):
        raise StatementError(f"{found[:80]!r} is no address of a run")
    return found


def _dependencies(bill: Bill, *, revision: str, uv: str) -> Iterator[Dependency]:
    """What it was made of, and by: the sources, the base, each wheel, and uv."""
    if revision:
        yield Dependency(uri=f"git+{bill.source}", algorithm="gitCommit", digest=revision)
    base = bill.base.version.removeprefix(_SHA256)
    yield Dependency(uri=bill.base.purl, algorithm="sha256", digest=base)
    for part in bill.parts:
        if part.kind == "wheel":
            yield Dependency(uri=part.purl, algorithm="sha256", digest=part.sha256)
    yield Dependency(uri=f"pkg:pypi/uv@{uv}")


def _document(one: Dependency) -> dict[str, Any]:
    return {"uri": one.uri, **({"digest": {one.algorithm: one.digest}} if one.algorithm else {})}


def _dependency(value: object) -> Dependency:
    fields = Fields(value, "a dependency")
    uri = fields.text("uri")
    if not isinstance(value, dict) or "digest" not in value:
        fields.nothing_else()
        return Dependency(uri=uri)
    digests = fields.value("digest", dict)
    fields.nothing_else()
    if len(digests) != 1:
        raise StatementError("a dependency has one digest")
    ((algorithm, digest),) = digests.items()
    if not isinstance(digest, str):
        raise StatementError("a digest is a text")
    return Dependency(uri=uri, algorithm=algorithm, digest=digest)
