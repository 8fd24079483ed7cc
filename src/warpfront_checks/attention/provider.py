"""Cases of attention: each backend, as the example calls it, with every kind of mask, head and
dtype. Needs no torch. Pure.

Backends are in the expected order of speed. Each takes (batch, heads, length, width) tensors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warpfront_checks.cases.case import Argument, Case
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.documents import packaged

MASKS = ("none", "causal", "mask")
WIDTHS, HEADS, GROUPED, BATCH = (64, 96, 128, 256, 512), 4, 2, 2
# An odd length, so that no tile is full.
LENGTHS = {"cpu": 65, "cuda": 129, "hpu": 129, "xpu": 129}
DTYPES_OF = {
    "cpu": ("float32", "bfloat16"),
    "cuda": ("bfloat16", "float16", "float32"),
    "hpu": ("bfloat16", "float32"),
    "xpu": ("bfloat16", "float16", "float32"),
}
# In float32, which is drawn in a fourth of float64's time.
DRAWN = "torch.randn({shape}, generator=g).to(torch.{dtype}).double()"
SIZES = ("batch", "length", "width", "heads", "grouped", "seed")
# By name, the parts of the example that is written, and that cases begin with.
PARTS: dict[str, str] = dict(
    re.findall(
        r"^=== (.+)\n((?:(?!=== ).*\n)*)",
        Path(__file__).with_name("fallback.txt").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
)


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A backend. `way` is the part of the example that calls it, with `options`. `kernels` and
    `operators` are names of its work on a device and on the CPU. `compiled` ones get fewer cases:
    each new shape is compiled. `lanes` children run its cases, each of which starts slowly, if
    there are cores for them.
    """

    name: str
    way: str
    kernels: str
    devices: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    operators: str = r"^$"
    needs: str = ""
    compiled: bool = False
    lanes: int = 1

    def absence(self, device: str) -> str:
        """Return why the backend is unavailable, or nothing."""
        if device not in self.devices:
            return f"it is not for {device}"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return ""

    def function(self, name: str) -> str:
        """Return the statements of the function that calls it."""
        return PARTS[self.way].format(function=name, **self.options)


_ROWS = packaged("attention/backends.json")["tiers"]
TIERS: Mapping[str, Tier] = {
    row["name"]: Tier(**{**row, "devices": tuple(row.get("devices", ("cuda",)))}) for row in _ROWS
}


def title_of(item: Mapping[str, Any]) -> str:
    """Return a case in words."""
    heads = "grouped" if item["grouped"] != item["heads"] else "equal heads"
    way = "backward" if item["backward"] else "forward"
    return f"{item['dtype']} width {item['width']}, {item['mask']}, {heads}, {way}"


def cases_of(tier: Tier, device: str, effort: CheckOptions) -> Iterator[dict[str, Any]]:
    """Yield the axes of all cases, few where each shape is compiled. Quickly each two values of two
    axes meet once.
    """
    axes: tuple[tuple[Any, ...], ...] = (
        DTYPES_OF[device][: 1 if tier.compiled else None],
        (64, 128) if tier.compiled else WIDTHS,
        MASKS[:2] if tier.compiled else MASKS,
        (HEADS, GROUPED),
        (False, True),
    )
    for dtype, width, mask, grouped, backward in (
        pairwise_product(axes) if effort.quick else itertools.product(*axes)
    ):
        parameters = {"dtype": dtype, "width": width, "mask": mask, "grouped": grouped}
        yield item_of(tier, device, effort, **parameters, backward=backward)


def item_of(tier: Tier, device: str, effort: CheckOptions, **axes: Any) -> dict[str, Any]:
    usual = {"batch": BATCH, "heads": HEADS, "length": LENGTHS[device], "seed": effort.seeds[0]}
    return {**usual, "tier": tier, "device": device, **axes}


def pairwise_product(axes: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """Return rows of the product, by most new pairs, in which all two values of two axes meet."""
    rows = [
        (row, {(i, j, row[i], row[j]) for i in range(len(row)) for j in range(i)})
        for row in itertools.product(*axes)
    ]
    missing = {pair for _, pairs in rows for pair in pairs}
    while missing:
        row, pairs = max(rows, key=lambda row: len(row[1] & missing))
        missing -= pairs
        yield row


def case_of(item: Mapping[str, Any]) -> Case:
    """Return the case of an item. Its reference is attention by its definition."""
    batch, length, width, heads, grouped, seed = (item[name] for name in SIZES)
    arguments = [
        Argument(name=name, shape=shape, drawn=shape, values=DRAWN, leaf=item["backward"])
        for name, count in zip("abc", (heads, grouped, grouped), strict=True)
        for shape in [(batch, count, length, width)]
    ]
    hidden, mask = "", "None"
    if item["mask"] == "mask":
        values = "(torch.rand({shape}, generator=g) < 0.7) | torch.eye({shape}[0]).bool()"
        square = (length, length)
        visible = Argument(name="d", shape=square, drawn=square, values=values, floating=False)
        arguments.append(visible)
        hidden, mask = ".masked_fill(~d, -math.inf)", "d"
    elif item["mask"] == "causal":
        hidden = ".masked_fill(torch.ones(a.shape[2], a.shape[2]).triu(1) > 0, -math.inf)"
    keys, values = (f"{x}.repeat_interleave(a.shape[1] // b.shape[1], 1)" for x in "bc")
    scores = f"(a @ {keys}.mT * a.shape[-1] ** -0.5){hidden}"
    return Case(
        operation=item["tier"].name,
        code=f"attend(a, b, c, {item['mask'] == 'causal'}, {mask})",
        definition=f"{scores}.softmax(-1) @ {values}",
        arguments=tuple(arguments),
        dtype=item["dtype"],
        device=item["device"],
        seed=seed,
        fed=DRAWN,
        setup=(*PARTS["imports"].splitlines(), item["tier"].function("attend")),
    )


def stored_item(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the item of a results file, or nothing where it is none of these cases."""
    tier, device = TIERS.get(str(document.get("tier"))), document.get("device")
    dtypes = DTYPES_OF.get(str(device), ())
    sizes = {name: document.get(name) for name in SIZES}
    known = tier and document.get("dtype") in dtypes and document.get("mask") in MASKS
    if not known or any(type(size) is not int or size < 0 for size in sizes.values()):
        return None
    chosen = {name: document[name] for name in ("dtype", "mask", "device")}
    return {**chosen, **sizes, "tier": tier, "backward": document.get("backward") is True}
