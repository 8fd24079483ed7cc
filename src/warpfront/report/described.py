"""A line about the result of a step for a cell. Pure."""

from __future__ import annotations

from warpfront.images.built import BuiltImage, RenderedImage
from warpfront.release.ledger import Publication, Stage
from warpfront.system.sizes import counted, readable_size
from warpfront.wheels.lock.values import WheelLock


def describe(result: object) -> str:
    """Return a locked, rendered or built result in words."""
    match result:
        case WheelLock():
            unbuilt = ", ".join(map(str, result.unbuilt))
            next_step = f"    next: warpfront build-wheels --only {result.cell_id}"
            wheels = counted(len(result.wheels), "wheel")
            locked = f"locked, {wheels}, {readable_size(result.size_bytes)}"
            return f"to be built: {unbuilt}\n{next_step}" if unbuilt else locked
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


def _published(public: Publication) -> str:
    """Return the tags of a publication or dry run, and the registry's state of each."""
    if public.stage is not Stage.DONE:
        return _foreseen(public)
    names = " ".join(tag.tag for tag in public.tags)
    sent_bytes = readable_size(public.sent_bytes)
    present = readable_size(public.present_bytes)
    signature = f"signed by {public.signed_by}" if public.signed_by else "unsigned"
    published = (
        f"published {public.reference} as {names}, {signature}; {sent_bytes} sent, {present} there"
    )
    for index in public.indexes:  # published only when it is complete
        of = f" of {', '.join(index.machines)}: {index.digest}"
        waits = f" waits for {'; '.join(index.waits)}"
        published += f"\n    index {index.tag}{waits if index.waits else of}"
    return published


def _foreseen(planned: Publication) -> str:
    targets = ", ".join(planned.targets) or "no target"
    size = readable_size(planned.present_bytes)
    send = f"at most {size} to send" if planned.present_bytes else "nothing of it to send"
    first = f"would publish {planned.image_id} to {planned.repository}"
    lines = [f"{first}, verified on {targets}; {send}"]
    lines += [f"    noted: {text}" for text in planned.noted]
    for tag in planned.tags:
        kind = "alias" if tag.moves else "tag"
        lines.append(f"    {kind} {tag.tag}: {f'is on {tag.before}' if tag.before else 'new'}")
    for index in planned.indexes:
        now = f"is on {index.before}" if index.before else "new"
        lines.append(f"    index {index.tag} of {', '.join(index.machines)}: {now}")
    return "\n".join(lines)
