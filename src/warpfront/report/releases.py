"""What is in a channel's repositories, and what was done about it, as people read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from warpfront.release.ledger import Explanation, Removed, Stock, Yank


def stock_text(stocks: Iterable[Stock]) -> str:
    """A paragraph a digest: its tags, what it was proven for, and what was let pass."""
    lines = []
    for one in sorted(stocks, key=lambda stock: (stock.repository, stock.tags)):
        lines.append(f"{one.repository}@{one.digest}")
        tags = [f"{tag} (alias)" if tag in one.aliases else tag for tag in one.tags]
        lines.append(f"    tags: {', '.join(tags)}")
        lines.append(f"    proven for: {', '.join(one.channels) or 'nothing'}")
        lines += [f"    noted: {text}" for text in one.noted]
        lines += ["    yanked"] if one.yanked else []
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
        f"{would} {one.repository}@{one.digest} ({', '.join(one.tags)}): {one.reason}"
        for one in removed
    ]
    lines += ["--yes removes them"] if lines and dry_run else []
    return "\n".join([*lines, ""]) if lines else "there is nothing to remove\n"


def explanation_text(found: Explanation) -> str:
    """What an image is, then what proves it, then who asked for what is in it."""
    lines = [found.reference]
    lines += [f"    {name}: {text}" for name, text in found.labels.items() if text]
    for one in found.proofs:
        wrong = f", which proves nothing of it: {one.wrong}" if one.wrong else ""
        sessions = " ".join(one.sessions)
        lines.append(f"    verified on {one.target}: {one.outcome}, {one.ended}, {sessions}{wrong}")
    lines += ["    not verified, as far as is attached"] if not found.proofs else []
    lines += [f"    noted: {text}" for text in found.noted]
    lines += [f"    attached: {name} {digest}" for name, digest in found.documents]
    lines.append(f"    signature: {'there is one' if found.signed else 'none'}")
    lines += ["    yanked"] if found.yanked else []
    lines += [f"    wheel {text}" for text in found.wheels]
    return "\n".join([*lines, ""])
