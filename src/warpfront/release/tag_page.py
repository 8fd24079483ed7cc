"""A published tag as Markdown: its contents, and what changed since the tag before. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from warpfront.release.tag_contents import Change, TagDifference, TagPage, difference
from warpfront.system.sizes import readable_size

_MOST_FOLDERS = 20
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+!|~])")
_NOT_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def tag_page(page: TagPage) -> str:
    """Return the page of an image under its tags. Without an image before it, it is the first."""
    now, before = page.now, page.before
    named = ", ".join(f"`{_plain(tag)}`" for tag in page.tags)
    size, built = readable_size(now.size_bytes), _cell(now.created) or "unknown"
    facts = (
        f"Tags: {named or 'none'}. Digest: `{_plain(now.digest)}`. Built: {built}. Size: {size}."
    )
    lines = [f"# {_cell(now.reference)}", "", facts, "", "## What changed", ""]
    if before:
        lines += difference_lines(difference(before, now))
    else:
        lines += ["This is the first image of its tag.", ""]
        lines += [f"Not determined: {_cell(part)}." for part in now.unread]
    for title, listed in (("Wheels", now.wheels), ("Debian packages", now.packages)):
        lines += ["", f"## {title} ({len(listed)})", ""]
        lines += _table(("name", "version"), sorted(listed.items()))
    largest = sorted(now.folders.items(), key=lambda part: (-part[1], part[0]))[:_MOST_FOLDERS]
    lines += ["", f"## Largest folders ({len(largest)} of {len(now.folders)})", ""]
    lines += _table(("folder", "size"), ((name, readable_size(size)) for name, size in largest))
    return "\n".join([*lines, ""])


def difference_text(tag_difference: TagDifference) -> str:
    """Return the difference alone, as `why` prints it."""
    lines = [
        f"# {_cell(tag_difference.before)} -> {_cell(tag_difference.now)}",
        "",
        *difference_lines(tag_difference),
    ]
    return "\n".join([*lines, ""])


def difference_lines(tag_difference: TagDifference) -> list[str]:
    was, is_ = tag_difference.size_bytes
    change = f"{'+' if is_ >= was else '-'}{readable_size(abs(is_ - was))}"
    sizes = f"{readable_size(was)} -> {readable_size(is_)} ({change})"
    lines = [f"Since `{_plain(tag_difference.before)}`: {sizes}."]
    for title, changes in (
        ("Wheels", tag_difference.wheels),
        ("Debian packages", tag_difference.packages),
    ):
        lines += ["", f"### {title}: {_count(changes)}"]
        rows = (
            (change.name, str(change.before or "-"), str(change.now or "-")) for change in changes
        )
        lines += ["", *_table(("name", "before", "now"), rows)] if changes else []
    lines += ["", f"### Folders: {_count(tag_difference.folders)}"]
    rows_of_sizes = (
        [
            change.name,
            *("-" if s is None else readable_size(int(s)) for s in (change.before, change.now)),
        ]
        for change in tag_difference.folders[:_MOST_FOLDERS]
    )
    if tag_difference.folders:
        lines += ["", *_table(("folder", "before", "now"), rows_of_sizes)]
    lines += ["", *(f"Not determined: {_cell(part)}." for part in tag_difference.undetermined)]
    return lines


def _count(changes: Sequence[Change]) -> str:
    if not changes:
        return "no difference"
    added = sum(change.before is None for change in changes)
    removed = sum(change.now is None for change in changes)
    return f"{added} added, {removed} removed, {len(changes) - added - removed} changed"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    body = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    head = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return [*head, *body] if body else ["none"]


def _cell(text: str) -> str:
    """Return foreign text as one cell of a Markdown table."""
    return _MARKDOWN.sub(r"\\\1", _plain(text))


def _plain(text: str) -> str:
    return _NOT_TEXT.sub("\N{REPLACEMENT CHARACTER}", text).replace("`", "'")
