"""A line about the result of a step for a cell; tables of a channel's repositories, and verdicts of
each tolerance profile. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from warpfront.images.built import BuiltImage, RenderedImage
from warpfront.release.ledger import CANDIDATE_PREFIX, Publication, Removed, Stage, Stock, Yank
from warpfront.system.texts import counted, readable_size
from warpfront.verify.results import Verification
from warpfront_checks.check_options import current_profile, stored_options


def describe(result: object) -> str:
    """Return a locked, rendered or built result in words."""
    # A machine that verifies itself has what else is here, and no pydantic.
    from warpfront.wheels.lock.values import WheelLock  # noqa: PLC0415

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


def stock_text(stocks: Iterable[Stock]) -> str:
    """Return a paragraph a digest: its tags, what it was proven for, and what was let pass."""
    lines = []
    for stock in stocks:
        lines.append(f"{stock.repository}@{stock.digest}")
        shown_tags = [tag for tag in stock.tags if not tag.startswith(CANDIDATE_PREFIX)]
        tags = [f"{tag} (alias)" if tag in stock.aliases else tag for tag in shown_tags]
        lines.append(f"    tags: {', '.join(tags) or 'none, it is a candidate'}")
        lines += [f"    part of: {', '.join(stock.listed_in)}"] if stock.listed_in else []
        lines.append(f"    proven for: {', '.join(stock.channels) or 'nothing'}")
        lines += [f"    noted: {text}" for text in stock.noted]
        lines += ["    yanked"] if stock.yanked else []
    return "\n".join([*lines, ""]) if lines else "nothing is published\n"


def yank_text(yank: Yank, *, dry_run: bool) -> str:
    would = "would take back" if dry_run else "took back"
    lines = [f"{would} {yank.repository}@{yank.digest}: {yank.reason or 'no reason given'}"]
    lines += [f"    {alias} -> {before}" for alias, before in yank.moved.items()]
    lines += [f"    {alias} stays: {why}" for alias, why in yank.kept.items()]
    if not yank.moved and not yank.kept:
        lines.append("    no alias was on it")
    return "\n".join([*lines, ""])


def pruning_text(removed: Iterable[Removed], *, dry_run: bool) -> str:
    would = "would remove" if dry_run else "removed"
    lines = [
        f"{would} {image.repository}@{image.digest} ({', '.join(image.tags)}): {image.reason}"
        for image in removed
    ]
    lines += ["--yes removes them"] if lines and dry_run else []
    return "\n".join([*lines, ""]) if lines else "there is nothing to remove\n"


ANSWERS = ("accepted", "refused", "silent")


def _counted(answers: object) -> dict[str, int]:
    """Return the number of tensors per verdict; values that are no numbers are not counted."""
    verdicts = answers if isinstance(answers, Mapping) else {}
    return {answer: verdicts[answer] for answer in ANSWERS if isinstance(verdicts.get(answer), int)}


def profiles_text(verification: Verification) -> str:
    """Return a table in plain text; nothing where nothing was compared."""
    # By profile: how many tensors it accepts, refuses, and has no tolerance for.
    counts: dict[str, Counter[str]] = {}
    for check in verification.checks:
        profiles = check.details.get("profiles")
        for profile, answers in profiles.items() if isinstance(profiles, Mapping) else ():
            counts.setdefault(current_profile(profile), Counter()).update(_counted(answers))
    if not sum(answers.total() for answers in counts.values()):
        return ""
    options = stored_options(verification.environment)
    decided = current_profile(str(options.get("profile"))) if options is not None else None
    lines = [f"{'tensors by tolerance':<22}{'accepted':>9}{'refused':>9}{'silent':>9}"]
    for profile in sorted(counts, key=lambda count: (count != decided, count)):
        numbers = "".join(f"{counts[profile][answer]:>9}" for answer in ANSWERS)
        lines.append(f"{profile:<22}{numbers}{'  decides' if profile == decided else ''}")
    return "\n".join(lines) + "\n"
