"""One line on the result of a step for a cell. Pure."""

from __future__ import annotations

from warpfront.images.built import BuiltImage, RenderedImage
from warpfront.release.ledger import IndexTagMove, Publication, Stage
from warpfront.system.sizes import readable_size
from warpfront.wheels.lock.values import WheelLock


def describe(result: object) -> str:
    """Return a locked, rendered or built result in words."""
    match result:
        case WheelLock():
            return f"locked, {len(result.wheels)} wheels, {readable_size(result.size_bytes)}"
        case RenderedImage():
            return f"rendered {', '.join(result.context)}"
        case BuiltImage(reused=True):
            return f"reused {result.reference} ({readable_size(result.size_bytes)})"
        case BuiltImage():
            size = readable_size(result.size_bytes)
            return f"built {result.reference} ({size}) in {result.seconds:.0f} s"
        case Publication():
            return _published(result)
        case _:
            return str(result)


def _published(publication: Publication) -> str:
    """Return the tags of a publication or dry run, and the registry's state of each."""
    if publication.stage is not Stage.DONE:
        return _foreseen(publication)
    names = " ".join(one.tag for one in publication.tags)
    sent = readable_size(publication.sent_bytes)
    there = readable_size(publication.present_bytes)
    signature = f"signed by {publication.signed_by}" if publication.signed_by else "unsigned"
    published = (
        f"published {publication.reference} as {names}, {signature}; {sent} sent, {there} there"
    )
    return "\n".join([published, *map(_index, publication.indexes)])


def _index(one: IndexTagMove) -> str:
    """An index is put only when it is whole."""
    if one.waits:
        return f"    index {one.tag} waits for {'; '.join(one.waits)}"
    return f"    index {one.tag} of {', '.join(one.machines)}: {one.digest}"


def _foreseen(planned: Publication) -> str:
    targets = ", ".join(planned.targets) or "no target"
    size = readable_size(planned.present_bytes)
    send = f"at most {size} to send" if planned.present_bytes else "nothing of it to send"
    first = f"would publish {planned.image_id} to {planned.repository}"
    lines = [f"{first}, verified on {targets}; {send}"]
    lines += [f"    noted: {text}" for text in planned.noted]
    for one in planned.tags:
        kind = "alias" if one.moves else "tag"
        lines.append(f"    {kind} {one.tag}: {f'is on {one.before}' if one.before else 'new'}")
    for index in planned.indexes:
        now = f"is on {index.before}" if index.before else "new"
        lines.append(f"    index {index.tag} of {', '.join(index.machines)}: {now}")
    return "\n".join(lines)
