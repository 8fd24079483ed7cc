"""Tables of a channel's repositories and of changes to them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from warpfront.release.ledger import CANDIDATE_PREFIX, Removed, Stock, Yank


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
