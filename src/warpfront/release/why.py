"""Why an image is as it is: from its labels and from what is attached to it, in words. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.images.built import CREATED, REVISION
from warpfront.images.labels import BASE, CELL, CONTENT_HASH, LOCK, PATCHED, RELAXED
from warpfront.release.statements.predicates import BuildRecord, Proof
from warpfront.wheels.resolve.demands import asking_line

_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_WORDS = (
    ("cell", CELL),
    ("lock", LOCK),
    ("content", CONTENT_HASH),
    ("revision", REVISION),
    ("created", CREATED),
    ("base", BASE),
    ("relaxed", RELAXED),
    ("patched", PATCHED),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """An image and the known facts of it. `making` and `proof` are the valid attachments,
    `signature` and `attestations` the results of verifying those, in words. `unread` is why an
    attachment does not count. `identities` are the engines' names of it. `asked` are (requiring
    part or "" for the image, required one, version or requirement).
    """

    reference: str
    digest: str
    labels: Mapping[str, str]
    signature: str
    attestations: str = "none"
    making: BuildRecord | None = None
    proof: Proof | None = None
    unread: tuple[str, ...] = ()
    identities: frozenset[str] = frozenset()
    asked: tuple[tuple[str, str, str], ...] = ()


def why_text(why: Why) -> str:
    """Return all of it, a fact a line."""
    lines = [f"{why.reference}", f"  digest     {why.digest}"]
    for word, label in _WORDS:
        if why.labels.get(label):
            lines.append(f"  {word:<10} {why.labels[label]}")
    lines.append(f"  signature  {why.signature}")
    lines.append(f"  attested   {why.attestations}")
    lines += [
        f"  but        {contradiction}" for contradiction in (*contradictions(why), *why.unread)
    ]
    if making := why.making:
        dependencies = making.dependencies
        wheels = [each for each in dependencies if each.digest and each.uri.startswith("pkg:pypi/")]
        sources = [each for each in dependencies if "gitCommit" in each.digest]
        bases = [each for each in dependencies if each.uri.startswith("pkg:oci/")]
        fields = ", ".join(f"{name} {' '.join(texts)}" for name, texts in making.asked if texts)
        lines += [f"provenance: made by {making.builder}, {making.created}"]
        lines += [f"  asked for {fields}", *(f"  on {base.uri}" for base in bases)]
        lines += [f"  from {source.uri} {source.digest['gitCommit']}" for source in sources]
        lines.append(f"  with {len(wheels)} wheels by sha256")
    else:
        lines.append("provenance: none is attached")
    lines.append("verification:" if why.proof else "verification: none is attached")
    for target in why.proof.targets if why.proof else ():
        sessions = ", ".join(
            f"{session.name} {session.outcome}, {session.checks}" for session in target.sessions
        )
        lines.append(f"  {target.target}: {target.outcome}, {target.at} ({sessions})")
    lines += [f"  let pass: {finding}" for finding in (why.proof.noted if why.proof else ())]
    if why.asked:
        lines.append("wheels, and who asked for each:")
        required = sorted({name for _, name, _ in why.asked})
        lines += [f"  {asking_line(name, why.asked)}" for name in required]
    return "".join(f"{_NOT_TEXT.sub(_UNKNOWN, line)}\n" for line in lines)


def contradictions(why: Why) -> tuple[str, ...]:
    """Return where attachments are about another image than the labels."""
    texts = []
    for kind, statement in (("provenance", why.making), ("verification", why.proof)):
        if statement is None:
            continue
        for word, label, value in (
            ("cell", CELL, statement.cell_id),
            ("content", CONTENT_HASH, statement.content_hash),
        ):
            if why.labels.get(label) != value:
                texts.append(f"the {kind} is of the {word} {value}")
    if why.making is not None and why.labels.get(LOCK) != why.making.lock:
        texts.append(f"the provenance is of the lock {why.making.lock}")
    if why.proof is not None:
        texts += [
            f"the verification on {target.target} is of the image {target.image_id}"
            for target in why.proof.targets
            if why.identities and target.image_id not in why.identities
        ]
        relaxed = ",".join(sorted(why.proof.relaxed))
        if relaxed != why.labels.get(RELAXED, ""):
            texts.append(f"the verification relaxes {relaxed or 'nothing'}")
    return tuple(texts)
