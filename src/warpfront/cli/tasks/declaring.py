"""Tasks from functions: options with their help, and errors as exit codes.

A parameter annotated with an `Option` is one option of that name, or without a default the word
after the task's name. A parameter annotated with `Options`, or of a dataclass whose fields are
annotated so, is several options that make one value; `display` receives progress.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TextIO, get_type_hints, overload

from invoke.exceptions import Exit
from invoke.tasks import Task, task

from warpfront.cli.display import Display
from warpfront.cli.job_output import job_output, shown
from warpfront.errors import (
    BUG_EXIT_CODE,
    INTERRUPTED_EXIT_CODE,
    UNREAD_EXIT_CODE,
    CommandFailedError,
    WarpfrontError,
)
from warpfront.matrix.cell import Selection
from warpfront.system.extras import how_to_install
from warpfront.system.process import terminable
from warpfront_checks.check_options import EFFORT_OPTIONS, CheckOptions, read_effort

WRONG_OPTION_EXIT_CODE = 1  # as invoke itself exits for an option that it does not know


@dataclass(frozen=True, slots=True)
class Option:
    """An option's line in `--help`."""

    help: str


@dataclass(frozen=True, slots=True)
class Options:
    """Several options that make one value: name -> default and help. `make` raises `ValueError`
    for what it cannot use.
    """

    each: Mapping[str, tuple[Any, Option]]
    make: Callable[..., Any]


def selecting(**helps: str) -> Options:
    """Return the four options that make a `Selection`, with what they mean to one task."""
    return Options({name: ("", Option(text)) for name, text in helps.items()}, Selection)


Chosen = Annotated[
    Selection,
    selecting(
        target="only cells that serve this target (sm_90, gfx942, gaudi3), or this vendor's (cpu)",
        vendor="only cells of this vendor: nvidia, amd, cpu, gaudi, intel",
        image="only cells of this image: torch, devel, ...",
        only="only cells whose id matches this glob; `invoke plan` lists the ids",
    ),
]
HowMuch = Annotated[
    CheckOptions,
    Options(
        {
            option.name: (
                option.default if option.default is False else str(option.default),
                Option(option.help),
            )
            for option in EFFORT_OPTIONS
        },
        read_effort,
    ),
]
Json = Annotated[bool, Option("print the result as JSON on stdout")]
AllowUndetermined = Annotated[
    bool, Option("exit 0 although part of the answer could not be determined (else exit 33)")
]
DryRun = Annotated[bool, Option("say what would be done, and do nothing")]
Locked = Annotated[
    bool, Option("refuse to make or change locks: what is committed must fit (for CI)")
]


@overload
def command(body: Callable[..., None]) -> Task[Any]: ...


@overload
def command(*, name: str) -> Callable[[Callable[..., None]], Task[Any]]: ...


def command(
    body: Callable[..., None] | None = None, *, name: str | None = None
) -> Task[Any] | Callable[[Callable[..., None]], Task[Any]]:
    """Make a task of a function with annotated parameters; `name` is for names that no
    function can have.
    """
    return functools.partial(_task, name=name) if body is None else _task(body, name=name)


def _task(body: Callable[..., None], *, name: str | None) -> Task[Any]:
    """Make the task: SIGTERM becomes an exception, and errors are printed and become exit
    codes here only.
    """
    groups = _option_groups(body)
    is_told = "display" in inspect.signature(body).parameters

    @functools.wraps(body)
    def invoked(_context: object, **options: Any) -> None:
        with job_output(), _errors_as_exit_codes(), terminable(), Display() as display:
            values = {name: _made(group, options) for name, group in groups.items()}
            body(**({"display": display} if is_told else {}), **values)

    every = _every(groups)
    invoked.__signature__ = _signature(every)  # type: ignore[attr-defined]
    decorated: Task[Any] = task(
        name=name,
        help={
            name.strip("_").replace("_", "-"): option.help for name, (_, option) in every.items()
        },
        iterable=[name for name, (default, _) in every.items() if default == ()],
    )(invoked)
    return decorated


def _signature(every: Mapping[str, tuple[Any, Option]]) -> inspect.Signature:
    """Return the signature that invoke reads options from. Numbers are texts for it, because
    its own reading of them ends in a traceback. A list's default is None; a parameter
    without a default is positional.
    """
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_as_text(default))
        for name, (default, _) in every.items()
    ]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature([context, *keywords])


def _as_text(default: object) -> object:
    if default == ():
        return None
    if default is inspect.Parameter.empty:
        return default
    return default if isinstance(default, bool) else str(default)


def _option_groups(declared: Callable[..., Any]) -> dict[str, Options]:
    """Return options by parameter or field. Raise `TypeError` for one without an annotation."""
    hints = get_type_hints(declared, include_extras=True)
    groups = {}
    for name, parameter in inspect.signature(declared).parameters.items():
        hint = hints[name]
        annotation = next(iter(getattr(hint, "__metadata__", ())), None)
        if name == "display":
            continue
        if isinstance(annotation, Options):
            groups[name] = annotation
        elif isinstance(annotation, Option):
            groups[name] = _single(name, parameter.default, annotation)
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            groups[name] = _of_fields(hint)
        else:
            raise TypeError(
                f"{declared.__name__}: {name} says nothing of itself: annotate an Option"
            )
    return groups


def _of_fields(kind: type) -> Options:
    groups = _option_groups(kind)

    def make(**values: Any) -> Any:
        return kind(**{name: _made(group, values) for name, group in groups.items()})

    return Options(_every(groups), make)


def _every(groups: Mapping[str, Options]) -> dict[str, tuple[Any, Option]]:
    return {name: option for group in groups.values() for name, option in group.each.items()}


def _single(name: str, default: Any, option: Option) -> Options:
    def make(**values: Any) -> Any:
        value = values[name]
        try:
            is_text = isinstance(default, bool) or default is inspect.Parameter.empty
            return value if is_text else type(default)(value)
        except ValueError:
            raise ValueError(f"--{name.replace('_', '-')} {value!r} is no number") from None

    return Options({name: (default, option)}, make)


def _made(group: Options, options: Mapping[str, Any]) -> Any:
    try:
        return group.make(**{n: options.get(n, default) for n, (default, _) in group.each.items()})
    except ValueError as error:
        raise _exit(f"error: {error}", WRONG_OPTION_EXIT_CODE) from None


def _exit(message: str, code: int) -> Exit:
    """The end of a task. invoke prints the message, when the streams are its own again."""
    return Exit(shown(message), code=code)


@contextlib.contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    """Print an error as what, where and what next, without a traceback, and exit with
    its own code.
    """
    try:
        yield
        sys.stdout.flush()
    except WarpfrontError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        raise _exit(f"error: {error.message}{hint}", error.exit_code) from None
    except KeyboardInterrupt:
        raise _exit("interrupted", INTERRUPTED_EXIT_CODE) from None
    except Exit:
        raise
    except ModuleNotFoundError as error:
        if not (command := how_to_install(error)):
            raise _exit(_bug_report(), BUG_EXIT_CODE) from None
        text = f"error: {error.name} is not installed\nhint: {command}"
        raise _exit(text, CommandFailedError.exit_code) from None
    except Exception as error:  # noqa: BLE001 - a bug: the one place that shows a traceback
        if isinstance(error, BrokenPipeError) and _is_unread(sys.stdout):
            # The interpreter flushes the rest again when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Exit(code=UNREAD_EXIT_CODE) from None
        raise _exit(_bug_report(), BUG_EXIT_CODE) from None


def _bug_report() -> str:
    return f"this is a bug in warpfront\n{traceback.format_exc()}"


def _is_unread(stream: TextIO) -> bool:
    """Return true if the reader of this pipe has gone, as `head` goes after its lines."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
