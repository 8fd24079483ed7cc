"""Points from rows: every combination of the matrix, without images. Pure.

The order is rows, `exclude`, patches of `include`, rows of `include`: the last are there
whatever was excluded.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpfront.errors import Problem
from warpfront.matrix.language import (
    DEFAULT_MACHINE,
    Axes,
    AxisLists,
    Filter,
    MatrixText,
    RowText,
)
from warpfront.system.document import Document, Where

CELL_LIMIT = 20_000
_REQUIRED = ("vendor", "targets", "python", "torch", "base", "images")
_AXIS_NAMES = tuple(axis.name for axis in dataclasses.fields(Axes))
_LIST_NAMES = tuple(axis.name for axis in dataclasses.fields(AxisLists))
_FILTER_NAMES = tuple(key.name for key in dataclasses.fields(Filter))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A combination of axis values and its images. "" = not set."""

    line: int
    vendor: str
    toolkit: str = ""
    targets: tuple[str, ...]
    machine: str = DEFAULT_MACHINE
    python: str
    torch: str
    index: str = ""
    base: str
    images: tuple[str, ...]
    companions: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tag_targets: bool = False


def expand_points(text: MatrixText, document: Document) -> tuple[list[Point], list[Problem]]:
    """Return the points of the matrix, in the order of its rows, and problems of the rows."""
    defaults = _given(text.defaults, _AXIS_NAMES)
    problems: list[Problem] = []
    points: list[Point] = []
    for place, row in enumerate(text.rows):
        points += _expand_row(row, ("rows", place), defaults, document, problems)
    for place, exclude in enumerate(text.exclude):
        points = _excluded(points, exclude, ("exclude", place), document, problems)
    for place, include in enumerate(text.include):
        where: Where = ("include", place)
        if include.row is not None and include.where is None and include.set is None:
            points += _expand_row(include.row, (*where, "row"), defaults, document, problems)
        elif include.row is None and include.where is not None and include.set is not None:
            points = _patched(points, (include.where, include.set), where, document, problems)
        else:
            message = "an include is either `row:`, or `where:` with `set:`"
            hint = "write `row:`, or both `where:` and `set:`"
            problems.append(document.problem(where, message, hint))
    return points, problems


def _given(text: object, names: Iterable[str]) -> dict[str, Any]:
    """Return the values of `text` under these names, without missing ones."""
    values = {name: getattr(text, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _expand_row(
    row: RowText,
    where: Where,
    defaults: Mapping[str, Any],
    document: Document,
    problems: list[Problem],
) -> list[Point]:
    axes = _given(row, _AXIS_NAMES)
    products, zips = _given(row.product, _LIST_NAMES), _given(row.zip, _LIST_NAMES)
    clashes = list(_clashes(axes, products, zips, where, document))
    fixed = {**defaults, **axes, "environment": _environment(defaults, axes)}
    for name in _REQUIRED:
        if name not in fixed and name not in products and name not in zips:
            message = f"the row has no `{name}`"
            clashes.append(document.problem(where, message, "give it in the row or in defaults:"))
    if clashes:
        problems += clashes
        return []
    line = document.line(where)
    return [Point(line=line, **{**fixed, **varied}) for varied in _combinations(products, zips)]


def _clashes(
    axes: Mapping[str, Any],
    products: Mapping[str, tuple[Any, ...]],
    zips: Mapping[str, tuple[Any, ...]],
    where: Where,
    document: Document,
) -> Iterator[Problem]:
    for name in _LIST_NAMES:
        places = [
            word
            for word, source in (("the row", axes), ("product:", products), ("zip:", zips))
            if name in source
        ]
        if len(places) > 1:
            message = f"`{name}` is given twice: in {' and in '.join(places)}"
            yield document.problem(where, message, "keep one of them")
    lengths = {name: len(values) for name, values in zips.items()}
    if len(set(lengths.values())) > 1:
        lengths_text = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        hint = "the lists of zip: are walked together"
        yield document.problem((*where, "zip"), f"lists of different length: {lengths_text}", hint)
    count = next(iter(lengths.values()), 1)
    for values in products.values():
        count *= len(values)
    if count > CELL_LIMIT:
        message = f"{count} combinations are more than {CELL_LIMIT} in one row"
        yield document.problem(where, message, "split the row")


def _environment(*layers: Mapping[str, Any]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update(layer.get("environment", {}))
    return merged


def _combinations(
    products: Mapping[str, tuple[Any, ...]], zips: Mapping[str, tuple[Any, ...]]
) -> Iterator[dict[str, Any]]:
    walked = [dict(zip(zips, values, strict=True)) for values in zip(*zips.values(), strict=True)]
    for values in itertools.product(*products.values()):
        crossed = dict(zip(products, values, strict=True))
        for together in walked or [{}]:
            yield {**crossed, **together}


def _excluded(
    points: list[Point],
    exclude: Filter,
    where: Where,
    document: Document,
    problems: list[Problem],
) -> list[Point]:
    filters = _given(exclude, _FILTER_NAMES)
    points_left: list[Point] = []
    matched = False
    for point in points:
        if not _matches(point, filters):
            points_left.append(point)
            continue
        matched = True
        if exclude.image is not None:
            images = tuple(image for image in point.images if image != exclude.image)
            if images:
                points_left.append(dataclasses.replace(point, images=images))
    if not matched:
        problems.append(_matches_nothing("exclude", filters, points, where, document))
    return points_left


def _patched(
    points: list[Point],
    patch: tuple[Filter, Axes],
    where: Where,
    document: Document,
    problems: list[Problem],
) -> list[Point]:
    chosen, change = patch
    filters, changes = _given(chosen, _FILTER_NAMES), _given(change, _AXIS_NAMES)
    if chosen.image is not None:
        message = "`image` is not an axis: a patch is for all images of a row"
        hint = "remove `image:` from `where:`"
        problems.append(document.problem((*where, "where", "image"), message, hint))
        return points
    patched = []
    matched = False
    for point in points:
        if not _matches(point, filters):
            patched.append(point)
            continue
        matched = True
        environment = _environment({"environment": point.environment}, changes)
        patched.append(dataclasses.replace(point, **{**changes, "environment": environment}))
    if not matched:
        problems.append(_matches_nothing("include", filters, points, where, document))
    return patched


def _matches(point: Point, filters: Mapping[str, Any]) -> bool:
    return all(_matches_key(point, name, value) for name, value in filters.items())


def _matches_key(point: Point, name: str, value: Any) -> bool:
    if name == "image":
        return value in point.images
    if name == "targets":
        return set(value) <= set(point.targets)
    return bool(getattr(point, name) == value)


def _matches_nothing(
    kind: str,
    filters: Mapping[str, Any],
    points: list[Point],
    where: Where,
    document: Document,
) -> Problem:
    """Names the first key that no point has, which is most often the mistake."""
    words = ", ".join(f"{name}: {_shown(value)}" for name, value in filters.items()) or "nothing"
    hint = "no cell has these values together"
    for name, value in filters.items():
        if not any(_matches_key(point, name, value) for point in points):
            have = sorted({_shown(_of(point, name)) for point in points})
            hint = f"no cell has {name} {_shown(value)}; there are {'; '.join(have[:8])}"
            break
    return document.problem(where, f"this {kind} matches no cell ({words})", hint)


def _of(point: Point, name: str) -> Any:
    return point.images if name == "image" else getattr(point, name)


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)
