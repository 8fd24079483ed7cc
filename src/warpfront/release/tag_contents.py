"""Contents of a published image by its own SBOM, the difference between two images, and the page
of a tag as Markdown. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from warpfront.release.sbom.documents import FOLDER, OURS
from warpfront.release.statements.statement import StatementError, objects_in, read_json, text_in
from warpfront.system.strict_values import object_in
from warpfront.system.texts import flat, markdown_table, markdown_text, readable_size

_KINDS = {"pkg:pypi/": "wheels", "pkg:deb/": "packages"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TagContents:
    """An image: wheels and Debian packages with their versions, folders with their bytes.
    `unread` has the unknown parts of that, and why.
    """

    reference: str
    digest: str
    created: str = ""
    size_bytes: int = 0
    wheels: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    folders: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TagPage:
    """The page of a published image: `before` is the previous image of its alias, None for none."""

    tags: tuple[str, ...]
    now: TagContents
    before: TagContents | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A changed name: its old and new value, None where it is absent."""

    name: str
    before: str | int | None
    now: str | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TagDifference:
    """The changes from `before` to `now`. `undetermined` are parts that could not be compared."""

    before: str
    now: str
    wheels: tuple[Change, ...]
    packages: tuple[Change, ...]
    folders: tuple[Change, ...]
    size_bytes: tuple[int, int]
    undetermined: tuple[str, ...] = ()


def contents_by_sbom(sbom: bytes, image: TagContents) -> TagContents:
    """Return the image with what a CycloneDX document lists, or why it cannot be read."""
    reference, prefix = image.reference, f"{OURS}:{FOLDER}"
    try:
        document = read_json(sbom)
        versions: dict[str, dict[str, str]] = {"wheels": {}, "packages": {}}
        for component in objects_in(document, "components"):
            for begin, kind in _KINDS.items():
                if text_in(component, "purl").startswith(begin):
                    versions[kind][text_in(component, "name")] = text_in(component, "version")
        described = object_in(document, "metadata", "component")
        folders: dict[str, int] = {}
        for entry in objects_in(described, "properties"):
            name, value = text_in(entry, "name"), text_in(entry, "value")
            is_size = value.isascii() and value.isdigit() and len(value) < 19
            if name.startswith(prefix) and is_size:
                folders[name.removeprefix(prefix)] = int(value)
    except StatementError as error:
        return replace(image, unread=(f"the SBOM of {reference}: {error}",))
    reasons = () if folders else (f"the SBOM of {reference} has no sizes of folders",)
    if not versions["wheels"] and not versions["packages"]:
        reasons = (*reasons, f"the SBOM of {reference} lists nothing")
    return replace(
        image,
        wheels=versions["wheels"],
        packages=versions["packages"],
        folders=folders,
        unread=reasons,
    )


def difference(before: TagContents, now: TagContents) -> TagDifference:
    """Return what changed between two images; folders that grew or shrank, the most first."""
    folders = [
        change
        for change in _changes(before.folders, now.folders)
        if before.folders and now.folders  # of one that has none, nothing grew
    ]
    return TagDifference(
        before=before.reference,
        now=now.reference,
        wheels=tuple(_changes(before.wheels, now.wheels)),
        packages=tuple(_changes(before.packages, now.packages)),
        folders=tuple(
            sorted(folders, key=lambda f: (-abs(int(f.now or 0) - int(f.before or 0)), f.name))
        ),
        size_bytes=(before.size_bytes, now.size_bytes),
        undetermined=(*before.unread, *now.unread),
    )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield Change(name=name, before=before.get(name), now=now.get(name))


_MOST_FOLDERS = 20


def tag_page(page: TagPage) -> str:
    """Return the page of an image under its tags. Without an image before it, it is the first."""
    now, before = page.now, page.before
    named = ", ".join(map(_code, page.tags))
    size, built = readable_size(now.size_bytes), markdown_text(now.created) or "unknown"
    facts = f"Tags: {named or 'none'}. Digest: {_code(now.digest)}. Built: {built}. Size: {size}."
    lines = [f"# {markdown_text(now.reference)}", "", facts, "", "## What changed", ""]
    if before:
        lines += difference_lines(difference(before, now))
    else:
        lines += ["This is the first image of its tag.", ""]
        lines += map(_unknown, now.unread)
    for title, listed in (("Wheels", now.wheels), ("Debian packages", now.packages)):
        lines += ["", f"## {title} ({len(listed)})", ""]
        lines += _table(("name", "version"), sorted(listed.items()))
    largest = sorted(now.folders.items(), key=lambda part: (-part[1], part[0]))[:_MOST_FOLDERS]
    lines += ["", f"## Largest folders ({len(largest)} of {len(now.folders)})", ""]
    lines += _table(("folder", "size"), ((name, readable_size(size)) for name, size in largest))
    return "\n".join([*lines, ""])


def difference_text(tag_difference: TagDifference) -> str:
    """Return the difference alone, as `why` prints it."""
    images = " -> ".join(map(markdown_text, (tag_difference.before, tag_difference.now)))
    return "\n".join([f"# {images}", "", *difference_lines(tag_difference), ""])


def difference_lines(tag_difference: TagDifference) -> list[str]:
    was, is_ = tag_difference.size_bytes
    change = f"{'+' if is_ >= was else '-'}{readable_size(abs(is_ - was))}"
    sizes = f"{readable_size(was)} -> {readable_size(is_)} ({change})"
    lines = [f"Since {_code(tag_difference.before)}: {sizes}."]
    for title, name, changes, shown in (
        ("Wheels", "name", tag_difference.wheels, str),
        ("Debian packages", "name", tag_difference.packages, str),
        ("Folders", "folder", tag_difference.folders, lambda size: readable_size(int(size))),
    ):
        rows = [
            (
                change.name,
                *("-" if v in {None, ""} else shown(v) for v in (change.before, change.now)),
            )
            for change in (changes[:_MOST_FOLDERS] if name == "folder" else changes)
        ]
        added = sum(change.before is None for change in changes)
        removed = sum(change.now is None for change in changes)
        count = f"{added} added, {removed} removed, {len(changes) - added - removed} changed"
        lines += ["", f"### {title}: {count if changes else 'no difference'}"]
        lines += ["", *markdown_table((name, "before", "now"), rows)] if rows else []
    return [*lines, "", *map(_unknown, tag_difference.undetermined)]


def _unknown(part: str) -> str:
    return f"Not determined: {markdown_text(part)}."


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rows = tuple(rows)
    return markdown_table(heads, rows) if rows else ["none"]


def _code(text: str) -> str:
    """Return foreign text as code in a line of Markdown."""
    plain = flat(text).replace("`", "'")
    return f"`{plain}`"
