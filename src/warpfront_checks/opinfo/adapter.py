"""The only module that touches `torch.testing._internal`: private, so any version may move it.

It uses `op_db`. Of an entry it uses `name`, `variant_test_name`, `supported_dtypes`,
`supported_backward_dtypes`, `sample_inputs_func`, and the entry as a function. Of a sample it
uses `input`, `args`, `kwargs`, `output_process_fn_grad`. `DatabaseMoved` names the part that
a torch lacks. Of samples some are spread over the first, for the first few are often the smallest;
those with an option or a form that none before them has are added.
"""

from __future__ import annotations

import importlib
import random
import sys
import types
import unittest
import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
import torch

from warpfront_checks.cases.operation import NUMBERS
from warpfront_checks.executing import tensors_in

DATABASE = "torch.testing._internal.common_methods_invocations"
# common_utils.SEED, from which torch draws the samples of its own tests.
SEED = 1234
ENTRY_NAMES = (
    "name",
    "variant_test_name",
    "supported_dtypes",
    "supported_backward_dtypes",
    "sample_inputs_func",
)
# With `max_norm` torch's CUDA kernel renormalises a weight that has gaps to less than `max_norm`
# (2.11 on an H100: 0.44 for 1): torch's defect, not an image's.
WHOLE = frozenset({"nn.functional.embedding", "nn.functional.embedding_bag"})
# These ask for numbers in the order of memory: as a view, to be resized, to be put back; on CUDA
# `channel_shuffle` does, in words.
IN_ORDER = ("view", "view_as", "resize_", "resize_as_", "nn.functional.channel_shuffle")
DECOMPOSE = ("cholesky", "geqrf", "logdet", "lu", "pinverse", "qr", "svd")
_PUTS_BACK = "nn.functional.max_unpool"
# An option's text is cut here: later differences are in numbers, not in kind.
_SAID_CHARACTERS = 60
SAMPLE_NAMES = ("input", "args", "kwargs", "output_process_fn_grad")


class DatabaseMoved(Exception):  # noqa: N818 - the name is the event
    """This torch has its operator database in another module, or in another form."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A call: torch's own object with its arguments, and with the transformation of the result
    before torch's tests compare it (signs of eigenvectors and the like). `place` is its index among
    torch's, for a `backward` or not, and `number` that among the chosen.
    """

    raw: Any
    place: int
    backward: bool
    number: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Entry:
    """An operator, or one variant of it, of the database."""

    name: str
    raw: Any

    def dtypes(self, device: str) -> frozenset[torch.dtype]:
        return frozenset(self.raw.supported_dtypes(device))

    def backward_dtypes(self, device: str) -> frozenset[torch.dtype]:
        return frozenset(self.raw.supported_backward_dtypes(device))

    @property
    def takes_strides(self) -> bool:
        """Return whether torch tests it with views: to some, strides are part of the result."""
        test_names = (getattr(decorator, "test_name", None) for decorator in self.raw.decorators)
        return self.name not in WHOLE and "test_noncontiguous_samples" not in test_names

    @property
    def takes_order(self) -> bool:
        """Return whether memory order may differ from the order of indices."""
        return self.takes_strides and not (
            self.name in IN_ORDER or self.name.startswith(_PUTS_BACK)
        )

    @property
    def by_matrix(self) -> bool:
        """Return whether its kernels decompose a matrix."""
        return self.name.startswith("linalg.") or self.name in DECOMPOSE

    def samples(
        self,
        device: str,
        dtype: torch.dtype,
        *,
        limit: int,
        backward: bool,
        among: int = 0,
        options_among: int = 0,
    ) -> Iterator[Sample]:
        """Return up to `limit` calls, spread over the first `4 * limit` or the first `among`.
        Those of the first `options_among` with new forms are added. One of more numbers than any
        case has is omitted. They are those of torch's own
        tests, every one drawn from the same seed. `sample_inputs` is not used: it searches the call
        stack for a test, twice, which took four times as long as everything else.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inputs = iter(self.raw.sample_inputs_func(self.raw, device, dtype, backward))
            samples = list(islice(_drawn_alike(inputs), options_among or among or 4 * limit))
        raw = [sample for sample in samples if numbers_of(sample) <= NUMBERS]
        if raw and (missing := [name for name in SAMPLE_NAMES if not hasattr(raw[0], name)]):
            raise DatabaseMoved(_moved(f"a sample without {missing[0]}"))
        first = spread(raw[: among or 4 * limit], limit)
        chosen = [*first, *(with_options(raw, first) if options_among else ())]
        places = {id(x): place for place, x in enumerate(samples)}
        for number, x in enumerate(chosen):
            yield Sample(raw=x, place=places[id(x)], backward=backward, number=number)


def spread(samples: Sequence[Any], limit: int) -> list[Any]:
    """Return at most `limit` samples, as far apart as possible."""
    return list(samples[:: max(1, -(-len(samples) // limit))])


def with_options(samples: Sequence[Any], chosen: Sequence[Any]) -> Iterator[Any]:
    """Yield, in order, the samples with a form that neither the chosen ones nor earlier ones
    have. A form is a number of axes, a dtype, an empty input, an option, or a value of it.
    """
    covered = {form for sample in chosen for form in _forms(sample)}
    for sample in samples:
        if forms := _forms(sample) - covered:
            covered |= forms
            yield sample


def _forms(sample: Any) -> set[Hashable]:
    arguments: dict[Hashable, Any] = {"input": sample.input, **dict(enumerate(sample.args))}
    options = dict(sample.kwargs)
    forms: set[Hashable] = {(name, _form(x)) for name, x in {**arguments, **options}.items()}
    return forms | {tuple(sorted(options)), len(sample.args)}


def _form(x: Any) -> str:
    """Return the form of an argument, without the numbers of tensors."""
    if isinstance(x, torch.Tensor):
        size = "empty" if not x.numel() else "one" if x.numel() == 1 else "some"
        return f"{x.dtype}, {x.dim()} axes, {size}"
    if isinstance(x, (list, tuple)) and any(isinstance(element, torch.Tensor) for element in x):
        return f"{min(len(x), 3)} tensors"
    return repr(x)[:_SAID_CHARACTERS]


def load_database() -> tuple[Entry, ...]:
    """Return every entry, named with its variant. Raises `DatabaseMoved`.

    Settings of precision must be made before: importing torch's test package freezes them.
    """
    if "expecttest" not in sys.modules and find_spec("expecttest") is None:
        sys.modules["expecttest"] = _stand_in()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = importlib.import_module(DATABASE)
    except ImportError as error:
        raise DatabaseMoved(_moved(f"no {DATABASE}: {error}")) from error
    database = getattr(module, "op_db", None)
    if not isinstance(database, list) or not database:
        raise DatabaseMoved(_moved(f"{DATABASE} without op_db"))
    missing = [name for name in ENTRY_NAMES if not hasattr(database[0], name)]
    if missing:
        raise DatabaseMoved(_moved(f"an entry without {missing[0]}"))
    return tuple(_named(raw) for raw in database)


def numbers_of(sample: Any) -> int:
    """Return the number of elements of all tensors of a sample."""
    return sum(x.numel() for x in tensors_in([sample.input, sample.args, sample.kwargs]))


def _drawn_alike(samples: Iterator[Any]) -> Iterator[Any]:
    """Yield the samples, each drawn from one seed; the database draws from three generators.
    torch's own is set alone: `torch.manual_seed` records a whole call stack for every device that
    is still unused, which took longer than all else.
    """
    while True:
        torch.random.default_generator.manual_seed(SEED)
        random.seed(SEED)
        np.random.seed(SEED)
        try:
            yield next(samples)
        except StopIteration:
            return


def _named(raw: Any) -> Entry:
    variant = raw.variant_test_name
    return Entry(name=f"{raw.name}.{variant}" if variant else raw.name, raw=raw)


def _stand_in() -> types.ModuleType:
    """Return a stand-in for expecttest: torch's test package takes a base class from it, which
    the database does not use.
    """
    module = types.ModuleType("expecttest")
    module.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    return module


def _moved(problem: str) -> str:
    return f"torch {torch.__version__} has {problem}; checks/opinfo/adapter.py says what it needs"
