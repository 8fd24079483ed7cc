"""Short forms of a record, for the catalogue's modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from warpfront_checks.cases.known_defects import defects_of
from warpfront_checks.cases.operation import MOVES, ROUNDED, Operation

Make = Callable[..., Operation]
# By names of functions, the fields that are only theirs.
Fields = Mapping[str, Mapping[str, Any]]
# Both parts of complex numbers; of a view of them torch refuses gradients at odd offsets.
PARTS = "(lambda z: torch.stack([z.real, z.imag], -1))"
BOUND = ("ulps", "roundings", "walk", "least")
FIELDS = {field.name for field in fields(Operation)}


# An axis from both ends, and an index that an option names, or none.
DIM = (0, -1, 1, -2)
PLACES = (None, 0, 1, -1)
# The values of an option that the code names and a row does not give: those of its name, or both
# of a flag.
USUAL: dict[str, Sequence[Any]] = {"dim": DIM, "reduction": ("none", "mean", "sum")}
USUAL |= {"divisor": (None, 5)}
# The memory of queries, keys and values.
USUAL |= {"placed": ((0, 0, 0), (1, 1, 1), (0, 0, 1), (0, 1, 0), (1, 0, 0), (2, 0, 0))}
FLAG = (False, True)
# Settings of windows, which have a number for each axis too.
WINDOWS: dict[str, Sequence[int]] = {"kernel": (2, 3), "size": (1, 3, 5)}
WINDOWS |= {"stride": (1, 2), "dilation": (1, 2), "padding": (0, 1), "extra": (0, 1)}


def steps(dims: int, *values: float) -> tuple[Any, ...]:
    """Return settings of windows: one number for all axes, and numbers that differ by axis."""
    uneven = [(values * dims)[i : i + dims] for i in range(len(values))]
    return (*values, *uneven) if dims > 1 else values


def exact(code: str, *shapes: str, **options: Any) -> Operation:
    """Return a record whose results are exact. Its name is that of the function that the code
    calls, where no other is given.

    A keyword that is an axis of `shapes` is a size: the one it has while another varies, or that
    and its largest. A keyword that is no field of a record either is an option. Options
    without a keyword come after the others, in the order of the code.
    """
    fields = {key: options.pop(key) for key in tuple(options) if key in FIELDS}
    name = fields.pop("name", "") or re.findall(r"(\w+)\(", code)[0]
    shape = [*shapes, fields.pop("shapes", "m n")][0]
    words = {word.strip("@&?%!") for word in shape.replace("|", " ").replace(",", " ").split()}
    # Families of records share the sizes that some of them have.
    shared = {key for key in options if len(key) == 1 and f"{{{key}}}" not in code}
    sizes = {key: options.pop(key) for key in tuple(options) if key in words | shared}
    usual = {key: size[0] if isinstance(size, tuple) else size for key, size in sizes.items()}
    most = {key: size[1] for key, size in sizes.items() if isinstance(size, tuple)}
    # The call of windows has the number of their axes in its name.
    dims = int([*re.findall(r"(\d)d\(", code), 1][0])
    windows = {key: steps(dims, *values) for key, values in WINDOWS.items()}
    missing = [key for key in re.findall(r"\{(\w+)\}", code) if key not in {*words, *options}]
    options |= {key: {**USUAL, **windows}.get(key, FLAG) for key in missing}
    fields |= {"options": options, "usual": usual, "most": most, "defects": defects_of(name)}
    return Operation(name=name, code=code, shapes=shape, **fields)


def moved(code: str, *shapes: str, **fields: Any) -> Operation:
    """Return a record of an operation that adds nothing up."""
    return exact(code, *shapes, **{"values": MOVES, "ulps": 0.0, **fields})


def rounded(code: str, *shapes: str, **fields: Any) -> Operation:
    """Return a record whose results are rounded on the way, sums of many terms too."""
    bound = {"exact": False, "values": ROUNDED, "roundings": 24.0, "walk": 1 / 16, "least": 1.0}
    return exact(code, *shapes, **{**bound, **fields})


def each(of: str | Fields, make: Make, *texts: str, **fields: Any) -> Iterator[Operation]:
    """Yield a record for each of several functions; its name takes the place of `$` in texts."""
    for names, own in {of: dict[str, Any]()}.items() if isinstance(of, str) else of.items():
        for name in names.split():
            named = {
                k: v.replace("$", name) if isinstance(v, str) else v for k, v in fields.items()
            }
            yield make(*(text.replace("$", name) for text in texts), **{**named, **own})


def contract(*parts: Operation) -> dict[str, float]:
    """Return the bound of a composition: the largest of its parts'."""
    return {name: max(getattr(part, name) for part in parts) for name in BOUND}
