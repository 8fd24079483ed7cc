"""The axes that an operation's cases cross, and a pairwise cover of them by seed.

Another seed draws other sizes within each class, other crossings and other numbers.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from warpfront_checks.cases.case import (
    COMPLEX,
    INDEX,
    INTEGERS,
    LAYOUTS,
    NAMES,
    VALUES,
    Argument,
    Case,
)
from warpfront_checks.cases.operation import HALF_SIZE, HALVES, ROUNDED, WORK, Operation

# Size classes: inclusive bounds. Kernels switch at powers of two, so odd sizes lie between them.
SIZES: Mapping[str, tuple[int, int]] = {
    "usual": (3, 9),
    "one": (1, 1),
    "below a wave": (10, 63),
    "tile": (64, 256),
    "past a wave": (65, 127),
    "past a small block": (257, 1023),
    "past a block": (1025, 2047),
    "past two blocks": (2049, 4095),
    "past many blocks": (4097, 8191),
    "past a grid": (65_537, 66_535),
    "past many grids": (524_289, 525_287),
}
TILES = (64, 128, 256)
WAVE = 64
# The rest past a boundary that half of such sizes have.
REST = 63
# Forms of memory, by the number of axes that each needs.
FORMS = {"contiguous": 0, "transposed": 2, "reversed": 3, "offset": 0, "gaps": 1, "window": 2}
FORMS |= {"expanded": 1, "last": 3, "some of the last": 3}
# Of operands of 16 bits the call names float32 as the dtype of its result.
NAMED = "dtype"
WIDE = ("float32", "float64")
FLOATS = (*HALVES, *WIDE)
HALF_NUMBERS = 4000
# Numbers whose sums leave what 16 bits count, or their range.
BEYOND = ("ones", "high")
# Numbers of more bits than 16-bit types have.
LONG_VALUES = ("wide", "sparse", "distinct", "rising", "falling")
# Where numbers differ, so that one is decisive, it also lies at either end of its line.
ORDERED = ("distinct", "rising", "falling")
ENDLESS = ("non-finite", "masked", "far", "rare")
# Numbers that are alike, or at a kink: of which one is the gradient is not determined.
TIED = ("above", "below", "signed", "short")
SHORTER = {"wide": "few", "sparse": "few", "normal": "quarters"}
# So many times choices are drawn for a domain, and sizes for each.
TRIES, CANDIDATES = 24, 6
# The share of sizes that stay usual, and of cases in which these are alike.
USUAL, ALIKE = 0.5, 0.125
# Numbers of a case whose sizes are drawn by chance, but for each so many-th one.
FEW_NUMBERS, LONG_STEP = 8000, 4
# A size that is long by itself, and so many of them before one of each other class.
LONG, LONG_TURN = "past a grid", 3
# Calls of one oracle besides the first.
CALLS = 2
# Lines that a kernel takes in one wave, one block, several of them, or several passes of a grid.
SCALES = (64, 256, 2048, 10**9)
# No size of another class is like it: it is drawn by itself.
NONE = "zero"
# The class of the longest size, its numbers, and the share of operations that have it in a seed.
LONGEST, MOST_NUMBERS, LONGEST_SHARE = "past many grids", 1_200_000, 0.125
# The share of long sizes along which an operation with an axis works.
ALONG = 0.7
# Lines in 16 bits of more terms than these count, and the numbers of such a case.
LONG_HALVES = ("past a small block", "past a block", "past many blocks")
LONG_NUMBERS = 140_000
# Memory that libraries have kernels of their own for, the share of calls that has it, and that of
# their operands and gradients.
FORMAT, FORMAT_SHARE, FORMAT_OF_EACH = "last", 0.2, 0.8
# Sizes of the axes while another one is tried.
SHORT = ("usual", "one", "below a wave")
QUICK_CASES = 3

# Values of an axis that other choices demand.
RECONCILED: Mapping[str, Iterable[str]] = {"gradient": ["none"], "values": VALUES}
# Numbers about 0. The differences of others are exact: a rounding of them is in no result.
CENTRED = (*ROUNDED, "equal")
# Keys of an assignment that are no axis, and those that are but follow from sizes.
UNCROSSED = ("lengths", "seed", "wide", "rounded")
UNLABELLED = (*UNCROSSED, "scale")
# Axes of which each two are crossed with every third one.
DECIDING = ("values", "dtype", "mixed", "gradient", "option ", "memory a", "absent")
# Drawn once in five times: dtypes whose kernels are those of narrower ones, and axes whose values,
# but for the first, leave others no choice.
RARE, RARE_AXES, RARE_SHARE = ("float64", "complex128"), ("mixed", "operands"), 0.2
# The dtype of half of the draws: only it has each gradient, destination and value.
PLAIN, PLAIN_SHARE = "float32", 0.5
# Axes in which two calls of one oracle differ.
OF_CALLS = ("memory ", "layout", "destination", "gradient", "dtype")
Assignment = dict[str, Any]
# A value of an axis, or two deciding ones.
Value = tuple[Any, Any]


class Crossings:
    """The values, and pairs of deciding ones, that were chosen together: a bit for each."""

    def __init__(self) -> None:
        self._bits: dict[Value, int] = {}
        self._met: dict[Value, int] = defaultdict(int)

    def bit(self, value: Value) -> int:
        return self._bits.setdefault(value, 1 << len(self._bits))

    def unmet(self, value: Value, others: int) -> int:
        """Return how many of the others a value was never chosen with."""
        return (others & ~self._met[value]).bit_count()

    def add(self, assignment: Assignment) -> None:
        values = sorted((a, str(v)) for a, v in assignment.items() if a not in UNCROSSED)
        deciding = [value for value in values if value[0].startswith(DECIDING)]
        crossed: list[Value] = [*values, *itertools.combinations(deciding, 2)]
        together = sum(map(self.bit, crossed))
        for value in crossed:
            self._met[value] |= together


def assignments_of(
    operation: Operation,
    dtypes: tuple[str, ...],
    seed: int,
    *,
    quick: bool = False,
    spare: bool = False,
) -> Iterator[Assignment]:
    """Yield the assignments of a seed: see `Drawing.assignments`."""
    drawing = Drawing(operation, dtypes, random.Random(f"{seed} {operation.name}"))
    return drawing.assignments(quick=quick, spare=spare)


class Drawing:
    """The choices of an operation's cases, drawn by one generator."""

    def __init__(self, operation: Operation, dtypes: tuple[str, ...], draw: random.Random) -> None:
        self.operation, self.draw = operation, draw
        self.axes, self.met = axes_of(operation, dtypes), Crossings()

    def assignments(self, *, quick: bool, spare: bool) -> Iterator[Assignment]:
        """Yield a value of every axis for each case, each covering pairs that none before it has.
        With `spare` more follow, in the place of cases that cannot be computed.
        """
        operation = self.operation
        count = QUICK_CASES if quick else operation.cases
        sized = self._sized(LONGEST_SHARE / 2 if quick else LONGEST_SHARE)
        # Each size class first, with the dtype and gradients that show most, and mostly such
        # numbers.
        first_axes: tuple[str, ...] = ("dtype", "destination", "gradient")
        # In a sum of products a rounded operand shows only by the longest numbers.
        first_axes += ("values",) if operation.ulps and operation.values[0] == "wide" else ()
        first_choices = {axis: self.axes[axis][0] for axis in first_axes}
        size_cases = count * 5 // 24
        remaining = count + operation.cases * spare
        for number in itertools.count():
            fixed, numbers = {}, operation.numbers
            # More than half of the oracles, of which each has two calls.
            if number < size_cases and number < len(sized):
                fixed = {**first_choices, **self._of_long_lines(sized[number])}
                alone = {LONG, LONGEST}.intersection(sized[number].values())
                if number % 2 and "values" not in first_axes and not alone:
                    del fixed["dtype"]
                numbers = MOST_NUMBERS if LONGEST in sized[number].values() else numbers
            elif number == size_cases and not quick:
                fixed = self._of_no_size()
            elif number % LONG_STEP:
                numbers = min(numbers, FEW_NUMBERS)
                if number % 2 and not (quick and "values" not in first_axes):
                    long = self._of_long_halves()
                    fixed, numbers = (long, LONG_NUMBERS) if long else (fixed, numbers)
            chosen = self._chosen(fixed, numbers)
            chosen |= {"seed": self.draw.randrange(2**31), "wide": number}
            calls = self._calls(chosen, 1 if quick else CALLS)[:remaining]
            yield from calls
            remaining -= len(calls)
            if not remaining:
                return

    def _calls(self, chosen: Assignment, more: int) -> list[Assignment]:
        """Return calls of one oracle: two of many numbers, and of few as many `more` as there are.
        One of these costs a quarter of an oracle.
        """
        calls = [chosen]
        self.met.add(chosen)
        few = max(chosen["lengths"].values(), default=0) < SIZES[LONG][0]
        for _ in range(more if few else 1):
            again = self._called_again(chosen)
            if again and again not in calls:
                calls.append(again)
                self.met.add(again)
        return calls

    def _of_no_size(self) -> Assignment:
        """Return a size as 0: the first operand's first, as that of a batch may be, or one that two
        operands share and that has no usual length: a sum of products is over nothing.
        """
        operation = self.operation
        first, free = operation.arguments()[0][1][:1], _shared(operation, 0) - {*operation.usual}
        if first and not first[0].isdigit() and (not free or self.draw.random() < USUAL):
            free = {*first}
        named = sorted(name for name in free if operation.least_of(name) == 1)
        return {"rank": 0, f"size {self.draw.choice(named)}": NONE} if named else {}

    def _of_long_halves(self) -> Assignment:
        """Return a long sum in 16 bits, if any: of ones where it is exact. What is counted or
        stored in them leaves their range. The result may have another dtype, which the call names.
        """
        operation, ones = self.operation, "ones" in self.axes["values"]
        short = [name for name in HALVES if name in self.axes["dtype"]]
        rank = self.draw.randrange(operation.ranks)
        names = sorted(_shared(operation, rank)) or operation.sizes(rank)
        longest = (*LONG_HALVES[1:], LONG) if ones else LONG_HALVES
        sizes = [
            {axis: size}
            for axis in (f"size {name}" for name in names)
            for size in longest
            if size in self.axes.get(axis, ())
        ]
        if not (short and sizes and (ones or (operation.walk and not operation.exact))):
            return {}
        long = self._of_long_lines(self.draw.choice(sizes))
        long |= {"dtype": self.draw.choice(short), **({"values": "ones"} if ones else {})}
        named = NAMED in self.axes["mixed"] and self.draw.random() < USUAL
        return {**long, "mixed": NAMED} if named else long

    def _of_long_lines(self, sized: Assignment) -> Assignment:
        """Return sizes to try with a rank that has them, and mostly an axis that they lie along."""
        operation = self.operation
        names = {axis.removeprefix("size ") for axis in sized}
        ranks = [r for r in range(operation.ranks) if names.intersection(operation.sizes(r))]
        chosen = {**sized, "rank": self.draw.choice(ranks)}
        words = operation.arguments(chosen["rank"])[0][1]
        dims = [
            d for d in self.axes.get("option dim", ()) if isinstance(d, int) and -len(words) <= d
        ]
        along = [d for d in dims if d < len(words) and words[d] in names]
        if along and self.draw.random() < ALONG:
            chosen["option dim"] = self.draw.choice(along)
        return chosen

    def _called_again(self, assignment: Assignment) -> Assignment:
        """Return the choices of another call whose oracle is the same, or nothing where there is
        none: other memory, destination, dtype, or fewer gradients.
        """
        lengths, values = assignment["lengths"], assignment["values"]
        # Of more numbers an exact sum leaves the range in which 16 bits count: CUDA's cumsum and
        # additions at an index keep it in them.
        moves = self.operation.exact and not self.operation.ulps
        most = SIZES[LONG][1] if moves else self.operation.half_size
        narrow = (
            (values == "ones" or max(lengths.values(), default=0) <= most)
            and not (self.operation.exact and "expanded" in assignment.values())
            and (self.operation.exact or self._bearable(assignment["rank"], lengths, HALF_NUMBERS))
            and self._narrowed(assignment).get("values", values) == values
        )
        same = (*(HALVES if narrow else ()), *WIDE) if not assignment["mixed"] else ()
        varied = {axis: [v for v in self.axes[axis] if v != "expanded"] for axis in self.axes}
        varied["dtype"] = [v for v in self.axes["dtype"] if v in same] or [assignment["dtype"]]
        if assignment["memory a"] == "expanded":
            varied["destination"] = [v for v in self.axes["destination"] if v != "in place"]
        fixed = {
            axis: value
            for axis, value in assignment.items()
            if not axis.startswith(OF_CALLS)
            or value == "expanded"
            or (axis == "dtype" and value not in same)
            or (axis == "gradient" and value != "all")
        }
        again = self._reconciled(self._candidate(varied, fixed, 0.0))
        if again == assignment:
            return {}
        width = again.pop("rounded", "")
        if again["dtype"] == assignment["dtype"]:
            again |= {"values": values, "rounded": width}
        elif again["dtype"] in WIDE and assignment["dtype"] in FLOATS and values != "far":
            # All these calls have the numbers of the narrowest dtype.
            narrowest = min(again["dtype"], width or assignment["dtype"], key=FLOATS.index)
            again["rounded"] = assignment["rounded"] = narrowest
        return again

    def _chosen(self, fixed: Assignment, numbers: int) -> Assignment:
        """Return choices drawn in the operation's domain, with the `fixed` values where found."""
        for number in range(TRIES):
            # What no domain has is never met, so that later tries leave more to chance.
            choices, chance = fixed if 2 * number < TRIES else {}, number * 2 % TRIES / TRIES
            chosen = self._candidate(self.axes, choices, chance)
            if "values" in choices:
                # Equal numbers are short, and mostly 0.
                chosen = {a: "contiguous" if v == "expanded" else v for a, v in chosen.items()}
            for _ in range(CANDIDATES):
                sizes = self._drawn_sizes(choices, numbers)
                candidate = self.constrained(chosen | sizes, choices, numbers)
                if in_domain(self.operation, candidate):
                    return candidate | {"scale": scale_of(self.operation, candidate)}
        raise ValueError(f"{self.operation.name}: no case was drawn in {self.operation.domain}")

    def _sized(self, share: float) -> list[Assignment]:
        """Return sizes to try: some of them long by themselves, then each class of some size before
        a second size of any, and one for all. Axes of two operands come first, along which products
        are added up, before half of the others, along which norms and losses are.
        """
        axes = self.axes
        operation = self.operation
        sizes = [axis for axis in axes if axis.startswith("size ")]
        single = {axis: "one" for axis in sizes if "one" in axes[axis]}
        some = [({axis: size}, size) for axis in sizes for size in axes[axis] if size != LONGEST]
        some += [(single, "single")] if len(single) > 1 else []
        self.draw.shuffle(some)
        shared = {
            f"size {word}" for rank in range(operation.ranks) for word in _shared(operation, rank)
        }
        later = [each for each in some if shared and shared.isdisjoint(each[0])][::2]
        some.sort(key=later.__contains__)
        before: Counter[str] = Counter()
        turns = []
        for chosen, size in some:
            turn = before[size] // LONG_TURN if size == LONG else before[size] + 1
            turns.append((turn, chosen))
            before[size] += 1
        longest = [{axis: LONGEST} for axis in sizes if LONGEST in axes[axis]]
        is_added = self.draw.random() < share and operation.work >= WORK and longest
        first = [self.draw.choice(longest)] if is_added else []
        return first + [chosen for _, chosen in sorted(turns, key=lambda turn: turn[0])]

    def _candidate(
        self, axes: Mapping[str, list[Any]], fixed: Assignment, chance: float
    ) -> Assignment:
        """Choose for each axis but sizes the value that was crossed with fewest of those chosen
        before, or by chance. Axes of few values come first, so that all of theirs cross, and before
        them the rank, which decides what forms of memory there are.
        """
        chosen, crossed, deciding = dict(fixed), 0, list[Value]()
        formatted = self.draw.random() < FORMAT_SHARE

        def place(axis: str) -> tuple[bool, bool, float]:
            return axis not in fixed, axis != "rank", len(axes[axis]) * self.draw.uniform(1, 2)

        sizes = (v for axis, v in fixed.items() if axis.startswith("size ") and v != NONE)
        longest = max((SIZES[v][0] for v in sizes), default=0)
        if longest:
            crossed |= self.met.bit(
                ("scale", str(next(most for most in SCALES if longest <= most)))
            )
        for axis in sorted((axis for axis in axes if not axis.startswith("size ")), key=place):
            if axis not in fixed:
                values = self._offered(axis, axes[axis], chosen, formatted=formatted)
                unmet = [self.met.unmet((axis, str(value)), crossed) for value in values]
                most = min(unmet) if self.draw.random() < chance else max(unmet)
                best = [v for v, count in zip(values, unmet, strict=True) if count >= most]
                chosen[axis] = self.draw.choice(best)
            pair = (axis, str(chosen[axis]))
            crossed |= self.met.bit(pair)
            if axis.startswith(DECIDING):
                for other in deciding:
                    crossed |= self.met.bit((min(pair, other), max(pair, other)))
                deciding.append(pair)
        return {axis: chosen[axis] for axis in axes if axis in chosen} | chosen

    def _offered(
        self, axis: str, values: list[Any], chosen: Assignment, *, formatted: bool
    ) -> list[Any]:
        """Return values of an axis to choose from: forms of memory that the rank has, one format
        if it is `formatted`, mostly no rare values, and float32 in half of the draws.
        """
        dims = [len(words) for _, words in self.operation.arguments(chosen.get("rank", 0))]
        if axis.startswith("memory "):
            forms = _forms(dims[NAMES.index(axis.removeprefix("memory "))])
            values = [value for value in values if value in forms]
        if formatted and FORMAT in values and FORMAT in _forms(max(dims)):
            return [FORMAT if self.draw.random() < FORMAT_OF_EACH else values[0]]
        common = [value for value in values if value not in RARE]
        if axis in RARE_AXES or (PLAIN in values and self.draw.random() < PLAIN_SHARE):
            common = values[:1]
        return common if common and self.draw.random() >= RARE_SHARE else values

    def _drawn_sizes(self, fixed: Assignment, numbers: int) -> Assignment:
        """Draw sizes that are not `fixed`, some of them usual: few long ones fit together."""
        sizes: Assignment = {}
        is_fixed = any(axis.startswith("size ") for axis in fixed)
        beside: tuple[str, ...] = SHORT if is_fixed else tuple(SIZES)
        beside = ("one",) if LONGEST in fixed.values() else beside
        for axis, classes in self.axes.items():
            if axis.startswith("size ") and axis not in fixed:
                fitting = [c for c in classes if c in beside and SIZES[c][0] <= numbers]
                by_chance = len(beside) == 1 or self.draw.random() >= USUAL
                sizes[axis] = self.draw.choice(fitting) if by_chance and fitting else classes[0]
        return sizes

    def constrained(
        self, assignment: Assignment, fixed: Assignment | None = None, numbers: int = 0
    ) -> Assignment:
        """Return an assignment that can be computed and has an oracle that bounds it, with at most
        so many `numbers`. Sizes that are `fixed` become smaller last.
        """
        # A long sum in 16 bits is tried.
        tried = {"dtype", "rank"} <= {*(fixed or ())}
        half = assignment["dtype"] in HALVES and not tried
        assignment = self._reconciled(assignment)
        rank = assignment.setdefault("rank", 0)
        names, usually = self.operation.sizes(rank), self.operation.usual
        for name in set(self.operation.sizes()) - set(names):
            assignment.pop(f"size {name}", None)
        lengths = {name: self._length(name, assignment[f"size {name}"]) for name in names}
        usual = [n for n in names if assignment[f"size {n}"] == "usual" and n not in usually]
        if usual and self.draw.random() < ALIKE:
            lengths |= dict.fromkeys(usual, min(lengths[name] for name in usual))
        longest = self.operation.half_size
        if half and not self.operation.exact:
            for name in (name for name, size in lengths.items() if size > longest):
                assignment[f"size {name}"] = "past a wave" if longest > WAVE else "below a wave"
                lengths[name] = self.draw.randrange(longest // 2 + 1 | 1, longest, 2)
        short = half and not self.operation.exact and longest <= HALF_SIZE
        most = HALF_NUMBERS if short else numbers or self.operation.numbers
        while not self._bearable(rank, lengths, most):
            name, size = self._smaller(lengths, fixed or {})
            if size >= lengths[name]:
                break
            lengths[name] = size
            assignment[f"size {name}"] = "usual"
        return assignment | {"lengths": lengths}

    def _reconciled(self, assignment: Assignment) -> Assignment:
        """Return choices of values, destination and gradient that go together."""
        if assignment["dtype"] in HALVES:
            assignment |= self._narrowed(assignment)
        slopes = self.operation.half_backward or assignment["dtype"] not in HALVES
        if assignment["destination"] or not slopes:
            assignment["gradient"] = "none"
        absent = assignment["absent"].split()
        learning = " ".join(n for n in assignment["gradient"].split() if n not in absent)
        is_axis = learning in (*self.axes["gradient"], "none")
        assignment["gradient"] = learning if is_axis else "all"
        if assignment["destination"] == "in place" and assignment["memory a"] == "expanded":
            assignment["memory a"] = "contiguous"
        if assignment["dtype"] in (*INTEGERS, "bool"):
            assignment |= {"gradient": "none", "values": self._integers(assignment)}
        if assignment["dtype"] in COMPLEX and assignment["values"] in ENDLESS:
            assignment["values"] = self.operation.values[0]
        if assignment["values"] in (*ENDLESS, *TIED):
            assignment["gradient"] = "none"
        return self._joined(assignment)

    def _joined(self, assignment: Assignment) -> Assignment:
        """Return choices that operands of two dtypes, or of one memory, allow."""
        wide = [] if assignment["mixed"] == NAMED else ["float32"]
        if assignment["mixed"] and assignment["dtype"] not in (*wide, *HALVES):
            assignment["mixed"] = ""
        if assignment["mixed"]:
            assignment |= {"destination": "", "gradient": "none", **self._narrowed(assignment)}
            operands = zip(NAMES, self.operation.arguments(assignment.get("rank", 0)), strict=False)
            bare = [name for name, (_, words) in operands if not words]
            if (self.operation.fit != "{x}" and assignment["mixed"] != NAMED) or assignment[
                "mixed"
            ] in bare:
                # An operand without axes has the other's dtype: its numbers are ones of 16 bits.
                assignment["values"] = "eighths"
        alike = _alike(self.operation, assignment.get("rank", 0))
        # Products of two long numbers are not exact.
        equal = assignment["operands"] == "partly equal"
        if assignment["mixed"] or len(alike) < 2 or (equal and assignment["values"] in LONG_VALUES):
            assignment["operands"] = ""
        if assignment["operands"]:
            assignment |= {f"memory {name}": "contiguous" for name in alike} | {"gradient": "none"}
        return assignment

    def _integers(self, assignment: Assignment) -> str:
        """Return numbers for an integer dtype: small, at its ends, and over its range or, of
        orders, in a row with no two alike.
        """
        if assignment["dtype"] == "bool":
            return "small"
        if {*self.operation.values} <= {*ORDERED, *ENDLESS, *TIED}:
            return "neighbours"
        several = ("neighbours",) if "distinct" in self.operation.values else ("bits",)
        return self.draw.choice(("small", "ends", *several))

    def _narrowed(self, assignment: Assignment) -> Assignment:
        """Return choices that 16 bits change: values that they have, sums that stay exact."""
        narrowed: Assignment = {}
        if "few" in self.operation.values and assignment["values"] not in (*ENDLESS, *BEYOND):
            # Of one sign a sum leaves the range in which 16 bits count.
            long = assignment["values"] in LONG_VALUES and "ones" in self.operation.values
            narrowed["values"] = "ones" if long else "few"
        elif assignment["values"] in LONG_VALUES:
            short = (value for value in self.operation.values if value not in LONG_VALUES)
            narrowed["values"] = next(short, "small")
        if self.operation.exact:
            # Of equal numbers a sum leaves the range in which it is exact.
            narrowed |= {
                axis: "contiguous" for axis, form in assignment.items() if form == "expanded"
            }
        return narrowed

    def _smaller(self, lengths: Mapping[str, int], fixed: Assignment) -> tuple[str, int]:
        """Return a size to change, and its new value. All but the largest first become usual, then
        least, so that the largest stays as long as it can.
        """
        *smaller, largest = sorted(
            lengths, key=lambda name: (f"size {name}" in fixed, lengths[name])
        )
        for most in (SIZES["usual"][1], 2, 1):
            least = {name: max(most, self.operation.least_of(name)) for name in smaller}
            large = [name for name in smaller if lengths[name] > least[name]]
            if large:
                name = self.draw.choice(large)
                return name, min(least[name], self._usual(name))
        return largest, self._usual(largest)

    def _length(self, name: str, kind: str) -> int:
        if kind in {"usual", NONE}:
            return self._usual(name) if kind != NONE else 0
        low, high = SIZES[kind]
        low = max(low, self.operation.least_of(name))
        high = min(high, self.operation.most.get(name, high))
        if kind == "tile" and high >= low:
            return self.draw.choice([size for size in TILES if low <= size <= high] or [high])
        # What follows a boundary closely is a short rest.
        high = min(high, low + REST) if self.draw.random() < USUAL else high
        size = self.draw.randint(low, high)
        return size - 1 if size > low and size % 2 == 0 else size

    def _usual(self, name: str) -> int:
        if name in self.operation.usual:
            return self.operation.usual[name]
        return min(self.draw.randint(*SIZES["usual"]), self.operation.most.get(name, 10**9))

    def _bearable(self, rank: int, lengths: Mapping[str, int], most: int) -> bool:
        shapes = [_shape(words, lengths) for _, words in self.operation.arguments(rank)]
        numbers = sum(math.prod(shape) for shape in shapes)
        small = all(size <= 9 for size in lengths.values())
        work = self.operation.work if most <= self.operation.numbers else most
        return small or (numbers <= most and math.prod(lengths.values()) <= work)


def scale_of(operation: Operation, assignment: Assignment) -> int:
    """Return the scale of the lines that an operation works along, or else of its longest size."""
    lengths, dim = assignment["lengths"], assignment.get("option dim")
    shape = _shape(operation.arguments(assignment["rank"])[0][1], lengths)
    line = shape[dim] if isinstance(dim, int) else max(lengths.values(), default=0)
    return next(most for most in SCALES if line <= most)


def in_domain(operation: Operation, assignment: Assignment) -> bool:
    """Return whether a case of an assignment has a right result that no rounding decides."""
    lengths = assignment["lengths"]
    options = {name: assignment[f"option {name}"] for name in operation.options}
    shape = _shape(operation.arguments(assignment["rank"])[0][1], lengths)
    names = {"math": math, "shape": shape, **lengths, **options}
    dim = options.get("dim")
    if isinstance(dim, int) and not -len(shape) <= dim < len(shape):
        return False
    return not operation.domain or bool(eval(operation.domain, names))  # noqa: S307


def _shared(operation: Operation, rank: int) -> set[str]:
    """Return the axes that more than one operand has."""
    words = Counter(word for _, axes in operation.arguments(rank) for word in {*axes})
    return {word for word, operands in words.items() if operands > 1}


def axes_of(operation: Operation, dtypes: tuple[str, ...]) -> dict[str, list[Any]]:
    """Return every axis of an operation, with its values."""
    axes: dict[str, list[Any]] = {}
    if operation.ranks > 1:
        axes["rank"] = list(range(operation.ranks))
    for name in operation.sizes():
        most = operation.most.get(name, 10**9)
        least = operation.least_of(name)
        classes = [c for c, (low, high) in SIZES.items() if low <= most and high >= least]
        axes[f"size {name}"] = classes
    ranks = [operation.arguments(rank) for rank in range(operation.ranks)]
    for place, name in zip(range(len(ranks[0])), NAMES, strict=False):
        dims = max(len(rank[place][1]) for rank in ranks)
        axes[f"memory {name}"] = _forms(dims) if operation.strided else ["contiguous"]
    axes |= {f"option {name}": list(values) for name, values in operation.options.items()}
    axes["absent"] = ["", *operation.absent]
    axes["values"] = list(operation.values)
    if "distinct" in axes["values"]:
        axes["values"] += ORDERED[1:]
    if any(mark[:1] == "&" for mark, _ in ranks[0]):
        axes["index"] = ["int64", "int32"]
    axes["dtype"] = [
        name
        for name in dtypes
        if operation.floats
        and (operation.halves or name not in HALVES)
        and (operation.doubles or name != "float64")
    ] + [name for name in operation.kinds if COMPLEX.get(name) != "float64" or "float64" in dtypes]
    axes["destination"] = list(operation.destinations)
    axes["layout"] = list(LAYOUTS) if operation.strided else ["contiguous", "expanded"]
    floats = [n for n, (m, _) in zip(NAMES, ranks[0], strict=False) if not m]
    # Each alone, and all but the first: the input of a network's first layer has none.
    some = floats if len(floats) > 1 else []
    some = [*some, " ".join(floats[1:])] if len(floats) > 2 else some
    axes["gradient"] = ["all", *some] if operation.backward else ["none"]
    # A result of another dtype than the operands': that of one of them, or one that the call names.
    named = [NAMED] if operation.takes_dtype and operation.halves else []
    axes["mixed"] = ["", *floats[:2], *named] if operation.promotes else ["", *named]
    alike = any(len(_alike(operation, rank)) > 1 for rank in range(operation.ranks))
    axes["operands"] = ["", "interleaved", "partly equal"] if alike and operation.strided else [""]
    return axes


def _alike(operation: Operation, rank: int) -> tuple[str, ...]:
    """Return the floating operands that have the first one's shape."""
    named = zip(NAMES, operation.arguments(rank), strict=False)
    floats = [(name, words) for name, (mark, words) in named if not mark]
    return tuple(name for name, words in floats if words and words == floats[0][1])


def _forms(dims: int) -> list[str]:
    return [form for form, least in FORMS.items() if dims >= least]


def _shape(words: list[str], lengths: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(word) if word.isdigit() else lengths[word] for word in words)


def _values(name: str, mark: str, assignment: Assignment, wide: str) -> str:
    """Return the values of an operand: those that its mark declares (indices, truth, a permutation)
    or the drawn ones. `wide` names the only one of several with long numbers.
    """
    if mark[:1] in {"@", "&"}:
        below = int(mark[1:]) if mark[1:].isdigit() else assignment["lengths"][mark[1:]]
        narrow = ".int()" if assignment.get("index") == "int32" else ""
        return INDEX.format(below=below, shape="{shape}") + narrow
    values = str(assignment["values"])
    if values == "wide" and wide not in {"", name}:
        values = "few"
    values = {"?": "truth", "%": "permutation"}.get(mark[:1], values)
    # Equal numbers all round alike; sums of these do not round.
    return SHORTER.get(values, values) if assignment[f"memory {name}"] == "expanded" else values


def build(operation: Operation, assignment: Assignment, device: str) -> Case:
    """Return the case of an assignment."""
    lengths = assignment["lengths"]
    options = {n: _literal(assignment[f"option {n}"]) for n in operation.options}
    code = operation.code.format(**lengths, **options)
    definition = operation.definition.format(**lengths, **options) or code
    if assignment.get("mixed") == NAMED:
        code = f"{code[:-1]}, dtype=torch.float32)"
    absent = assignment.get("absent", "").split()
    for name in absent:
        code, definition = (re.sub(rf"\b{name}\b", "None", text) for text in (code, definition))
    arguments = []
    operands = operation.arguments(assignment["rank"])
    floats = [n for n, (m, _) in zip(NAMES, operands, strict=False) if not m and n not in absent]
    wide = _wide_operand(operands, assignment)
    dtypes = _dtypes(floats, assignment)
    alike = _alike(operation, assignment["rank"])
    partly_equal = assignment.get("operands") == "partly equal" and alike[0] == "a"
    for name, (mark, words) in zip(NAMES, operands, strict=False):
        if name in absent:
            continue
        arguments.append(
            laid_out(
                Argument(
                    name=name,
                    shape=_shape(words, lengths),
                    drawn=_shape(words, lengths),
                    values=_values(name, mark, assignment, wide if len(floats) > 1 else ""),
                    like="a" if partly_equal and name in alike[1:] else "",
                    fit=operation.fit,
                    floating=mark in {"", "!"},
                    leaf=not mark and bool({"all", name} & {*assignment["gradient"].split()}),
                    dtype=dtypes.get(name, ""),
                ),
                assignment[f"memory {name}"],
            )
        )
    return Case(
        operation=operation.name,
        code=code,
        definition=definition,
        arguments=tuple(arguments),
        dtype=_result_dtype(arguments, assignment),
        device=device,
        seed=assignment["seed"],
        rounded=assignment.get("rounded", ""),
        destination=assignment["destination"],
        interleaved=alike if assignment.get("operands") == "interleaved" else (),
        layout=_layout(assignment),
        fed=_fed(operation, assignment),
        ulps=operation.ulps,
        roundings=_roundings(operation, assignment, arguments),
        least=operation.least,
        relative=assignment["values"] == "far",
        summed=_may_cancel(operation, assignment),
        labels=_labels(assignment),
        lengths=lengths,
    )


def _may_cancel(operation: Operation, assignment: Assignment) -> bool:
    """Return whether a case has long sums of rounded terms about 0."""
    long = operation.walk > 0 and operation.cancels and not operation.exact
    return long and assignment["values"] in CENTRED


def _labels(assignment: Assignment) -> tuple[tuple[str, object], ...]:
    """Return the axes of a case with the values to name it by."""
    return tuple(
        (k, v) for k, v in assignment.items() if k not in UNLABELLED and v not in ("usual", "")
    )


def _dtypes(floats: list[str], assignment: Assignment) -> dict[str, str]:
    """Return the dtype of each operand, where one has another width than the rest or the result."""
    dtype = assignment["dtype"]
    if not assignment.get("mixed"):
        return {}
    other = "float32" if dtype in HALVES else "bfloat16"
    return {name: other if name == assignment["mixed"] else dtype for name in floats}


def _result_dtype(arguments: list[Argument], assignment: Assignment) -> str:
    """Return a result's dtype: the call's, or the widest of operands with axes, else of all."""
    mixed = [argument for argument in arguments if argument.dtype]
    deciding = [argument.dtype for argument in mixed if argument.shape] or [assignment["dtype"]]
    wide = "float32" in deciding or assignment.get("mixed") == NAMED
    return "float32" if wide else deciding[0]


def _roundings(operation: Operation, assignment: Assignment, arguments: list[Argument]) -> float:
    named = assignment.get("mixed") == NAMED
    if assignment["dtype"] in HALVES and operation.half_roundings and not named:
        return operation.half_roundings
    # Of equal terms each rounds to the same side: n/4 roundings of n.
    alike = _layout(assignment) == "expanded" and assignment["gradient"] != "none"
    walk = max(operation.walk, 0.25) if alike and operation.walk else operation.walk
    return operation.roundings + walk * _terms(operation, assignment, arguments)


def _wide_operand(operands: tuple[tuple[str, list[str]], ...], assignment: Assignment) -> str:
    """Return the operand whose numbers are long: one only, so that every sum of products stays
    exact, and one that has the longest axis, so that a long sum has such terms.
    """
    lengths = assignment["lengths"]
    longest = max(lengths, key=lambda size: lengths[size], default="")
    absent = assignment.get("absent", "").split()
    named = [(n, words) for n, (mark, words) in zip(NAMES, operands, strict=False) if not mark]
    named = [(name, words) for name, words in named if name not in absent]
    holders = [name for name, words in named if longest in words] or [name for name, _ in named]
    return holders[assignment["wide"] % len(holders)] if holders else ""


def _terms(operation: Operation, assignment: Assignment, arguments: list[Argument]) -> int:
    """Return the number of terms of the largest sum: of an axis where there is one, else of all
    numbers, for a broadcast operand's gradient adds up all that it met. In 16 bits it is float32's.
    """
    along = assignment.get("option dim") is not None and assignment["gradient"] == "none"
    if along or assignment["dtype"] in HALVES:
        return max(assignment["lengths"].values(), default=0)
    return max(math.prod(argument.shape) for argument in arguments)


def _literal(value: Any) -> str:
    infinite = isinstance(value, float) and math.isinf(value)
    return f"float({str(value)!r})" if infinite else repr(value)


def _fed(operation: Operation, assignment: Assignment) -> str:
    """Return the values of the gradient: of numbers that are mostly 0 one alone is none."""
    alone = "signs" if _layout(assignment) == "expanded" else "few"
    return alone if operation.exact else "quarters"


def _layout(assignment: Assignment) -> str:
    alone = assignment["layout"] == "empty" and assignment["destination"] != "out"
    # Where all terms of a gradient are equal, it cancels, rounds to one side, or leaves the range
    # in which 16 bits count.
    equal = any(value == "expanded" for axis, value in assignment.items() if axis != "layout")
    equal |= assignment["dtype"] in HALVES or assignment["values"] == "equal"
    alike = assignment["layout"] == "expanded" and equal
    return "contiguous" if alone or alike else str(assignment["layout"])


def laid_out(argument: Argument, form: str) -> Argument:
    """Give an argument the strides of a form; one without elements stays as it is."""
    shape, axes = argument.shape, list(range(len(argument.shape)))
    if form not in _forms(len(shape)) or form == "contiguous" or not math.prod(shape):
        return argument
    if form == "expanded":
        if argument.values in {"permutation", "neighbours", *ORDERED}:
            return argument
        # Along all axes but one, as a bias is, or along one alone, as a grey picture's colours are.
        long = [i for i in axes if shape[i] > 1] or axes
        alone = long[sum(shape) // 2 % len(long)] if sum(shape) % 2 and len(long) > 1 else -1
        repeated = {alone} if alone >= 0 else {i for i in axes if i != long[0]}
        unexpanded = tuple(1 if i in repeated else n for i, n in enumerate(shape))
        return replace(argument, drawn=unexpanded)
    order = {
        "transposed": [*axes[:-2], *axes[-2:][::-1]],
        "reversed": axes[::-1],
        "last": [0, *axes[2:], 1],
        "some of the last": [0, *axes[2:], 1],
    }.get(form, axes)
    roomy = {"window": axes, "some of the last": [1]}.get(form, [])
    strides, step = [0] * len(shape), 2 if form == "gaps" else 1
    for axis in reversed(order):
        strides[axis] = step
        step *= shape[axis] + 3 * (axis in roomy)
    offset = {"offset": 3, "window": 5, "some of the last": 2}.get(form, 0)
    return replace(argument, strides=tuple(strides), offset=offset)
