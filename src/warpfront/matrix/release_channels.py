"""`release:` of matrix.yaml to channels: their templates, and who may claim an alias. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.matrix.cell import Cell
from warpfront.matrix.expansion import FILTER_NAMES, given
from warpfront.matrix.language import AliasText, ChannelText, Filter, MatrixText
from warpfront.matrix.selection import nearest
from warpfront.system.document import Document, Where
from warpfront.system.strict_values import extended
from warpfront_checks.check_options import CHECK_SESSIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias(AliasText):
    """A tag that moves, with the ids of the cells that may claim it."""

    cells: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel(ChannelText):
    """A set of tags with its policy."""

    name: str
    aliases: tuple[Alias, ...] = ()


TAG_WORDS: Mapping[str, str] = {
    "torch": "torch's public version (2.14.1)",
    "torch_minor": "its first two numbers (2.14)",
    "toolkit": "the toolkit that torch is built with (cuda13.0), or cpu",
    "python": "X.Y of the interpreter (3.11)",
    "machine": "what the image runs on (x86_64)",
    "targets": "the targets that it was verified on (sm80_sm90)",
    "date": "the day it was built on (20261122)",
    "revision": "the commit it was built from, 12 digits",
    "content": "12 digits of its content hash",
}
_WORD = re.compile(r"\{([a-z_]+)\}")


def words_of(template: str) -> tuple[str, ...]:
    """Return the words that a template of a tag names, in their order."""
    return tuple(_WORD.findall(template))


def read_channels(
    text: MatrixText, document: Document, cells: tuple[Cell, ...]
) -> tuple[Channel, ...]:
    """Return the channels; refuse what is wrong with them."""
    channels: list[Channel] = []
    for name, written in text.release.items():
        where: Where = ("release", name)
        _check(written, document, where)
        aliases = []
        for place, alias in enumerate(written.aliases):
            claiming = frozenset(cell.id for cell in cells if _matches(cell, alias.where))
            aliases.append(extended(Alias, alias, cells=claiming))
            if not claiming:
                message = f"the alias {alias.tag} is for no cell"
                hint = "correct its `where:`, or remove the alias"
                document.refuse((*where, "aliases", place), message, hint)
        channel = extended(
            Channel,
            written,
            name=name,
            repository=written.repository or text.project.repository,
            aliases=tuple(aliases),
            allow=tuple(sorted(written.allow)),
        )
        channels.append(channel)
    return tuple(channels)


def _check(written: ChannelText, document: Document, where: Where) -> None:
    templates = [(("tags", place), tag) for place, tag in enumerate(written.tags)]
    templates += [(("aliases", place), alias.tag) for place, alias in enumerate(written.aliases)]
    for place, template in templates:
        for word in words_of(template):
            if word not in TAG_WORDS:
                hint = nearest(word, TAG_WORDS)
                message = f"{template}: an image does not say `{word}` of itself"
                document.refuse((*where, *place), message, hint)
    for name in written.sessions:
        if name not in CHECK_SESSIONS:
            message = f"there is no session `{name}`"
            document.refuse((*where, "sessions"), message, nearest(name, CHECK_SESSIONS))


def _matches(cell: Cell, chosen: Filter | None) -> bool:
    """Return true if the cell has every value of the filter."""
    values = {
        "toolkit": cell.toolkit.version if cell.toolkit else None,
        "index": cell.index.name if cell.index else None,
        "base": cell.base.name,
        **{name: getattr(cell, name) for name in ("vendor", "machine", "python", "torch", "image")},
    }
    filters = given(chosen, FILTER_NAMES)
    targets = filters.pop("targets", ())
    return set(targets) <= set(cell.targets) and filters.items() <= values.items()
