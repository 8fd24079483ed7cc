"""Tags as values: made from an image's own labels, and checked all together before any of them
is pushed. Pure.

A tag is never made from a request. The tags that the matrix would lead to are computed, too, but
only to find two cells that would claim one name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from warpfront.images.built import CREATED, REVISION
from warpfront.images.labels import CONTENT_HASH
from warpfront.matrix.cell import Cell
from warpfront.matrix.expansion import joined_targets
from warpfront.matrix.release_channels import Channel, words_of
from warpfront.matrix.vendors import VENDORS
from warpfront.release.ledger import NOT_PUBLIC, IndexTagMove, staged_tag
from warpfront.system.references import is_tag

_DIGITS = 12
_SHOWN = 3


SharedTemplates = Mapping[str, tuple[str, ...]]
"""The templates of a cell that its twins for other machines fill in the same way, and all of those
machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of an image: `repository` with its host, fixed tags, and moving aliases, the
    most specific first. `shared` are names of it and its twins for other machines. `wrong` is why
    it cannot have these names.
    """

    cell_id: str
    repository: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    shared: tuple[IndexTagMove, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def claims(self) -> Mapping[str, str]:
        """Return each reference, and the image or index that it would be on."""
        names = {f"{self.repository}:{tag}": self.cell_id for tag in (*self.tags, *self.aliases)}
        return names | {
            f"{self.repository}:{name.tag}": f"an index of {' and '.join(name.machines)}"
            for name in self.shared
        }


def tag_words(
    cell: Cell, facts: Mapping[str, str], labels: Mapping[str, str], targets: tuple[str, ...]
) -> Mapping[str, str]:
    """Return the words of a tag: from the facts that `load` found inside, from labels that are
    part of the image, and from its verified targets. Unknown words are omitted.
    """
    torch = facts.get("torch", "").partition("+")[0]
    words = {
        "torch": torch,
        "torch_minor": _minor(torch),
        # A vendor's fork of torch does not know the toolkit of its base.
        "toolkit": (facts["toolkit"] or "cpu")
        if "toolkit" in facts and VENDORS[cell.vendor].torch_from == "index"
        else "",
        "python": facts.get("python", ""),
        "machine": facts.get("machine", ""),
        "targets": joined_targets(targets),
        "date": labels.get(CREATED, "").partition("T")[0].replace("-", ""),
        "revision": labels.get(REVISION, "")[:_DIGITS],
        "content": labels.get(CONTENT_HASH, "")[:_DIGITS],
    }
    return {name: word for name, word in words.items() if word}


def expected_words(cell: Cell) -> Mapping[str, str]:
    """Return the words of an image of this cell, if the build follows the matrix."""
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


def names_of(
    cell: Cell, channel: Channel, words: Mapping[str, str], *, shared: SharedTemplates | None = None
) -> Names:
    """Return all names of one image in one channel."""
    shared = shared or {}
    wrong: list[str] = []
    filled = {template: _filled(template, words, wrong) for template in _templates(cell, channel)}
    aliases = [alias.tag for alias in channel.aliases if cell.id in alias.cells]
    # Those that say most first: a pull by a general name finds the particular one already there.
    aliases.sort(key=lambda template: -len(words_of(template)))
    tags = [filled[tag] for tag in channel.tags if tag not in shared]
    moving = [filled[alias] for alias in aliases if alias not in shared]
    fixed, moves = ({filled[template] for template in some} for some in (channel.tags, aliases))
    wrong += [f"{name} is a tag that never moves and an alias" for name in fixed & moves]
    indexes = [
        IndexTagMove(tag=filled[tag], moves=tag not in channel.tags, machines=shared[tag])
        for tag in (*channel.tags, *aliases)
        if tag in shared
    ]
    both = {index.tag for index in indexes} & {*tags, *moving}
    wrong += [f"{name} is of this image alone and of an index" for name in sorted(both)]
    wrong += [
        f"{index.tag} is too long for a name of several machines"
        for index in indexes
        if not all(is_tag(staged_tag(index.tag, machine)) for machine in index.machines)
    ]
    return Names(
        cell_id=cell.id,
        repository=f"{channel.repository}/{cell.image}",
        tags=tuple(dict.fromkeys(tags)),
        aliases=tuple(dict.fromkeys(moving)),
        shared=tuple(dict.fromkeys(indexes)),
        wrong=tuple(dict.fromkeys(wrong)),
    )


def shared_in_matrix(cells: Iterable[Cell], channel: Channel) -> Mapping[str, SharedTemplates]:
    """Return, by cell, the templates that it and its twins fill alike: cells of one image that
    differ in their machine. Each of them also needs a tag of its own, or nothing would lead to its
    image; without one the name is a clash.
    """
    claims: defaultdict[str, dict[str, tuple[Cell, str]]] = defaultdict(dict)
    for cell in cells:
        for template in _templates(cell, channel):
            tag = _filled(template, expected_words(cell), [])
            claims[f"{cell.image}:{tag}"][cell.id] = cell, template
    groups = (tuple(claim.values()) for claim in claims.values())
    twins = [group for group in groups if _are_twins([cell for cell, _ in group])]
    by_cell: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for group in twins:
        for cell, template in group:
            by_cell[cell.id][template] = tuple(sorted(twin.machine for twin, _ in group))
    nameless = {
        cell_id for cell_id, templates in by_cell.items() if {*channel.tags} <= {*templates}
    }
    for group in twins:
        if any(cell.id in nameless for cell, _ in group):
            for cell, template in group:
                del by_cell[cell.id][template]
    return by_cell


def _are_twins(cells: list[Cell]) -> bool:
    """Return whether these are one image for several machines, a cell for each."""
    kinds = {(c.vendor, c.toolkit and c.toolkit.version, c.python, c.torch, c.image) for c in cells}
    return 1 < len(cells) == len({cell.machine for cell in cells}) and len(kinds) == 1


def _templates(cell: Cell, channel: Channel) -> tuple[str, ...]:
    aliases = (alias.tag for alias in channel.aliases if cell.id in alias.cells)
    return tuple(dict.fromkeys((*channel.tags, *aliases)))


def clashes(every: Iterable[Names]) -> Mapping[str, tuple[str, ...]]:
    """Return, by cell, a text for each of its names that would be on more than one image or index.
    The text names the first claimants.
    """
    every, claims = tuple(every), defaultdict[str, dict[str, None]](dict)
    for names in every:
        for reference, claimant in names.claims.items():
            claims[reference][claimant] = None
    texts = {}
    for reference, claimants in claims.items():
        more = len(claimants) - _SHOWN
        named = [*[*claimants][:_SHOWN], *([f"{more} more"] if more > 0 else [])]
        if len(claimants) > 1:
            texts[reference] = f"{reference} is claimed by {' and by '.join(named)}"
    by_cell = {
        names.cell_id: tuple(text for name, text in texts.items() if name in names.claims)
        for names in every
    }
    return {cell_id: mine for cell_id, mine in by_cell.items() if mine}


def clashes_of_matrix(cells: Iterable[Cell], channel: Channel) -> Mapping[str, tuple[str, ...]]:
    """Return, by cell, the names that another cell of the matrix would claim too, selected or
    not. The last publisher must not win the name.
    """
    cells = tuple(cells)
    shared = shared_in_matrix(cells, channel)
    return clashes(
        names_of(cell, channel, expected_words(cell), shared=shared.get(cell.id)) for cell in cells
    )


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


def _minor(torch: str) -> str:
    try:
        version = Version(torch)
    except ValueError:
        return ""
    return f"{version.major}.{version.minor}"
