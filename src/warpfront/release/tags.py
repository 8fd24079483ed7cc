"""Tags as values: made from what an image says of itself, and checked all together before any of
them is sent anywhere. Pure.

A tag is never made from what was asked for. What the matrix would lead to is computed, too, but
only to find two cells that would claim one name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from warpfront.images.labels import CONTENT_HASH, CREATED, REVISION
from warpfront.matrix.naming import is_tag, joined_targets
from warpfront.matrix.release_channels import words_of
from warpfront.matrix.vendors import VENDORS
from warpfront.model import Cell, Channel
from warpfront.release.ledger import NOT_PUBLIC

_DIGITS = 12
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What an image is to be called: `repository` with its host, tags that never move, aliases
    that do, those that say most first. `wrong` is why it cannot be called so.
    """

    cell_id: str
    repository: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    wrong: tuple[str, ...] = ()

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(f"{self.repository}:{tag}" for tag in (*self.tags, *self.aliases))


def tag_words(
    cell: Cell, facts: Mapping[str, str], labels: Mapping[str, str], targets: tuple[str, ...]
) -> Mapping[str, str]:
    """The words of a tag, from the facts that `load` found inside, from labels that are part of the
    image, and from the targets that it was verified on. What nobody knows is not among them.
    """
    torch = facts.get("torch", "").partition("+")[0]
    words = {
        "torch": torch,
        "torch_minor": _minor(torch),
        # A vendor's fork of torch does not know the toolkit of its base.
        "toolkit": _toolkit(facts) if VENDORS[cell.vendor].torch_from == "index" else "",
        "python": facts.get("python", ""),
        "machine": facts.get("machine", ""),
        "targets": joined_targets(targets),
        "date": labels.get(CREATED, "").partition("T")[0].replace("-", ""),
        "revision": labels.get(REVISION, "")[:_DIGITS],
        "content": labels.get(CONTENT_HASH, "")[:_DIGITS],
    }
    return {name: word for name, word in words.items() if word}


def expected_words(cell: Cell) -> Mapping[str, str]:
    """The words that an image of this cell would have, if all went as the matrix says."""
    return {
        "torch": cell.torch,
        "torch_minor": _minor(cell.torch),
        "toolkit": str(cell.toolkit or VENDORS[cell.vendor].device),
        "python": cell.python,
        "machine": cell.machine,
        "targets": joined_targets(cell.targets),
        "date": "20000101",
        "revision": "0" * _DIGITS,
        "content": cell.id,
    }


def names_of(cell: Cell, channel: Channel, words: Mapping[str, str], *, project: str) -> Names:
    """All names of one image in one channel. `project` is the project's own repository."""
    wanted = [alias.template for alias in channel.aliases if cell.id in alias.cells]
    # Those that say most first: a pull by a general name finds the particular one already there.
    wanted.sort(key=lambda template: -len(words_of(template)))
    wrong: list[str] = []
    tags = [_filled(template, words, wrong) for template in channel.tags]
    aliases = [_filled(template, words, wrong) for template in wanted]
    wrong += [f"{name} is a tag that never moves and an alias" for name in {*tags} & {*aliases}]
    return Names(
        cell_id=cell.id,
        repository=f"{channel.repository or project}/{cell.image}",
        tags=tuple(dict.fromkeys(tags)),
        aliases=tuple(dict.fromkeys(aliases)),
        wrong=tuple(dict.fromkeys(wrong)),
    )


def clashes(every: Iterable[Names]) -> tuple[str, ...]:
    """Each name that more than one cell claims, with the first of those who do."""
    claims: defaultdict[str, list[str]] = defaultdict(list)
    for names in every:
        for reference in names.references:
            claims[reference].append(names.cell_id)
    return tuple(
        f"{reference} is claimed by {_named(cell_ids)}"
        for reference, cell_ids in claims.items()
        if len(cell_ids) > 1
    )


def _named(cell_ids: list[str]) -> str:
    more = len(cell_ids) - _SHOWN
    rest = [f"{more} more"] if more > 0 else []
    return " and by ".join([*cell_ids[:_SHOWN], *rest])


def clashes_of_matrix(
    cells: Iterable[Cell], channel: Channel, *, project: str
) -> Mapping[str, tuple[str, ...]]:
    """By cell, the names that another cell of the matrix would claim too, selected or not: who
    publishes last must not be who has them.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    every = [names_of(cell, channel, expected_words(cell), project=project) for cell in cells]
    for clash in clashes(every):
        reference = clash.partition(" ")[0]
        for names in every:
            if reference in names.references:
                found[names.cell_id].append(clash)
    return {cell_id: tuple(texts) for cell_id, texts in found.items()}


def _filled(template: str, words: Mapping[str, str], wrong: list[str]) -> str:
    missing = [word for word in words_of(template) if word not in words]
    if missing:
        wrong.append(f"{template}: the image does not say its {' and '.join(missing)}")
        return template
    # A local version label and a machine's odd letters have no place in a tag.
    tag = template.format_map(words).replace("+", "-")
    if not is_tag(tag):
        wrong.append(f"{tag!r} is no tag that a registry takes (at most 128 of A-Za-z0-9_.-)")
    if tag.startswith(NOT_PUBLIC):
        wrong.append(f"{tag}: names that begin so are of candidates and of what is attached")
    return tag


def _toolkit(facts: Mapping[str, str]) -> str:
    return (facts["toolkit"] or "cpu") if "toolkit" in facts else ""


def _minor(torch: str) -> str:
    try:
        version = Version(torch)
    except InvalidVersion:
        return ""
    return f"{version.major}.{version.minor}"
