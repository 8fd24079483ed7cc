"""Points from rows: every combination of the matrix, without images; and the names of a cell, its
id and its tag, which are written here and parsed back nowhere. Pure.

The order is rows, `exclude`, patches of `include`, rows of `include`: the last are there
whatever was excluded.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from warpfront.matrix.cell import Toolkit
from warpfront.matrix.compat_table import Combination
from warpfront.matrix.language import (
    DEFAULT_MACHINE,
    Axes,
    AxisLists,
    Filter,
    IncludeText,
    MatrixText,
    RowText,
)
from warpfront.system.document import Document, Where

CELL_LIMIT = 20_000
_REQUIRED = ("vendor", "targets", "python", "torch", "base", "images")
_AXIS_NAMES = tuple(axis.name for axis in dataclasses.fields(Axes))
_LIST_NAMES = tuple(axis.name for axis in dataclasses.fields(AxisLists))
FILTER_NAMES = tuple(key.name for key in dataclasses.fields(Filter))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Combination):
    """A combination of axis values and its images. "" = not set."""

    line: int
    machine: str = DEFAULT_MACHINE
    base: str
    images: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tag_targets: bool = False


def expand_points(text: MatrixText, document: Document) -> list[Point]:
    """Return the points of the matrix, in the order of its rows; refuse what is wrong with them."""
    expansion = _Expansion(document=document, defaults=given(text.defaults, _AXIS_NAMES))
    for place, row in enumerate(text.rows):
        expansion.add_row(row, ("rows", place))
    for place, exclude in enumerate(text.exclude):
        expansion.exclude(exclude, ("exclude", place))
    for place, include in enumerate(text.include):
        expansion.include(include, ("include", place))
    return expansion.points


def given(text: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of `text` under these names, without missing ones."""
    values = {name: getattr(text, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


@dataclass(kw_only=True)
class _Expansion:
    """Points so far. `defaults` are the values of `defaults:`."""

    document: Document
    defaults: Mapping[str, Any]
    points: list[Point] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.refuse = self.document.refuse

    def add_row(self, text: RowText, where: Where) -> None:
        axes = given(text, _AXIS_NAMES)
        products, zips = given(text.product, _LIST_NAMES), given(text.zip, _LIST_NAMES)
        before = len(self.document.problems)
        self._check_lists({"the row": axes, "product:": products, "zip:": zips}, where)
        usual = self.defaults.get("environment", {})
        environment = {**usual, **axes.get("environment", {})}
        fixed = {**self.defaults, **axes, "environment": environment}
        for name in _REQUIRED:
            if name not in {*fixed, *products, *zips}:
                hint = "give it in the row or in defaults:"
                self.refuse(where, f"the row has no `{name}`", hint)
        if len(self.document.problems) == before:
            line = self.document.line(where)
            walked = [dict(zip(zips, row, strict=True)) for row in zip(*zips.values(), strict=True)]
            for values in itertools.product(*products.values()):
                varied = {**fixed, **dict(zip(products, values, strict=True))}
                self.points += (Point(line=line, **{**varied, **each}) for each in walked or [{}])

    def _check_lists(self, sources: Mapping[str, Mapping[str, Any]], where: Where) -> None:
        for name in _LIST_NAMES:
            places = [word for word, source in sources.items() if name in source]
            if len(places) > 1:
                message = f"`{name}` is given twice: in {' and in '.join(places)}"
                self.refuse(where, message, "keep one of them")
        lengths = {name: len(values) for name, values in sources["zip:"].items()}
        if len(set(lengths.values())) > 1:
            lengths_text = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            hint = "the lists of zip: are walked together"
            self.refuse((*where, "zip"), f"lists of different length: {lengths_text}", hint)
        zipped = next(iter(lengths.values()), 1)
        count = zipped * math.prod(map(len, sources["product:"].values()))
        if count > CELL_LIMIT:
            message = f"{count} combinations are more than {CELL_LIMIT} in one row"
            self.refuse(where, message, "split the row")

    def exclude(self, exclude: Filter, where: Where) -> None:
        matching = self._matching("exclude", exclude, where)
        points_left = []
        for place, point in enumerate(self.points):
            images = tuple(image for image in point.images if image != exclude.image)
            if place not in matching:
                points_left.append(point)
            elif exclude.image is not None and images:
                points_left.append(dataclasses.replace(point, images=images))
        self.points = points_left

    def include(self, include: IncludeText, where: Where) -> None:
        if include.row is not None and include.where is None and include.set is None:
            self.add_row(include.row, (*where, "row"))
        elif include.row is None and include.where is not None and include.set is not None:
            if include.where.image is not None:
                message = "`image` is not an axis: a patch is for all images of a row"
                self.refuse((*where, "where", "image"), message, "remove `image:` from `where:`")
                return
            changes = given(include.set, _AXIS_NAMES)
            for place in self._matching("include", include.where, where):
                point = self.points[place]
                environment = {**point.environment, **changes.get("environment", {})}
                changed = {**changes, "environment": environment}
                self.points[place] = dataclasses.replace(point, **changed)
        else:
            message = "an include is either `row:`, or `where:` with `set:`"
            self.refuse(where, message, "write `row:`, or both `where:` and `set:`")

    def _matching(self, kind: str, chosen: Filter, where: Where) -> frozenset[int]:
        """Return the places of the points that a filter matches. The problem of one without any
        names the first key that no point has, which is most often the mistake.
        """
        filters = given(chosen, FILTER_NAMES)
        matching = frozenset(
            place
            for place, point in enumerate(self.points)
            if all(_matches_key(point, name, value) for name, value in filters.items())
        )
        if not matching:
            words = ", ".join(f"{name}: {_shown(value)}" for name, value in filters.items())
            hint = "no cell has these values together"
            for name, value in filters.items():
                if not any(_matches_key(point, name, value) for point in self.points):
                    axis = "images" if name == "image" else name
                    have = sorted({_shown(getattr(point, axis)) for point in self.points})
                    hint = f"no cell has {name} {_shown(value)}; there are {'; '.join(have[:8])}"
                    break
            message = f"this {kind} matches no cell ({words or 'nothing'})"
            self.refuse(where, message, hint)
        return matching


def _matches_key(point: Point, name: str, value: Any) -> bool:
    if name == "image":
        return value in point.images
    if name == "targets":
        return set(value) <= set(point.targets)
    return bool(getattr(point, name) == value)


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


_BEFORE_NUMBER = re.compile(r"(?<=[a-z])_(?=[0-9])")
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,199}\Z")


def cell_id(point: Point, toolkit: Toolkit | None, image: str) -> str:
    """Return `nvidia-cuda130-sm80_sm90-py311-torch2141-torch`: lower case, no dots."""
    hardware = (str(toolkit or ""), *_hardware(point, point.targets))
    parts = (point.vendor, *hardware, f"py{point.python}", f"torch{point.torch}", image)
    return "-".join(filter(None, parts)).replace(".", "")


def cell_tag(point: Point, toolkit: Toolkit | None) -> str:
    """Return `2.14.1-cuda13.0-py3.11`, with targets and machine after the toolkit if needed."""
    hardware = _hardware(point, point.targets if point.tag_targets else ())
    parts = (point.torch, str(toolkit or point.vendor), *hardware, f"py{point.python}")
    return "-".join(filter(None, parts))


def _hardware(point: Point, targets: tuple[str, ...]) -> tuple[str, str]:
    """Return the targets, and the machine if it is not the usual one, nor a target."""
    is_plain = point.machine in {DEFAULT_MACHINE, *targets}
    return joined_targets(targets), "" if is_plain else point.machine


def is_id(text: str) -> bool:
    """Return true if `text` can be a file name, a folder and part of a PEP 751 file name."""
    return _ID.match(text) is not None


def joined_targets(targets: tuple[str, ...]) -> str:
    """Return targets as names have them, `sm80_sm90`: `sm_80` loses its underscore."""
    return "_".join(_BEFORE_NUMBER.sub("", target) for target in targets)


def verifying_job(cell_id: str, target: str) -> str:
    """Return the name of the job that verifies a cell on a target."""
    return f"verify-{cell_id}-{target}"
