"""Commands from functions: options with their help, and errors as exit codes.

`warpfront GROUP COMMAND`, invoke's tasks and the completion of shells are made from what `command`
returns. A parameter annotated with an `Option`, or with its text, is one option of that name, or
without a default the word after the command's name. A parameter annotated with `Options`, or of a
dataclass whose fields are annotated so, is several options that make one value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import select
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from warpfront import errors
from warpfront.cli.display import Display, Volume
from warpfront.cli.job_output import job_output, shown
from warpfront.cli.tasks.showing import print_json
from warpfront.matrix.cell import Selection
from warpfront.matrix.selection import nearest
from warpfront.system.extras import how_to_install
from warpfront.system.process import terminable
from warpfront_checks.check_options import EFFORT_OPTIONS, CheckOptions, read_effort

REQUIRED = inspect.Parameter.empty


def dashed(name: str) -> str:
    """Return a parameter's name as an option: `dry_run` is `--dry-run`, `from_` is `--from`."""
    return f"--{name.strip('_').replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Option:
    """An option's line in `--help`.

    Capitals and two spaces before the text name its value: `FILE  also write JSON`. `place` makes
    it an optional word after the command (invoke takes it as an option). `formerly` are names that
    work for one release more. A `hidden` option works and is not listed.
    """

    text: str
    _: dataclasses.KW_ONLY
    place: bool = False
    choices: tuple[str, ...] = ()
    formerly: tuple[str, ...] = ()
    hidden: bool = False
    short: str = ""

    @property
    def help(self) -> str:
        return self.text.rpartition("  ")[2]

    def metavar(self, name: str) -> str:
        """Return the name of the value of the option `name` in help."""
        return self.text.rpartition("  ")[0] or name.strip("_").upper()


@dataclass(frozen=True, slots=True)
class Options:
    """Several options that make one value: name -> default and help. `make` raises `ValueError`
    for what it cannot use.
    """

    each: Mapping[str, tuple[Any, Option]]
    make: Callable[..., Any]


# Options that mean the same in many commands: `warpfront docs options` lists them.
COMMON: Mapping[str, Option] = {
    "target": Option("only cells for gfx942, sm_90, gaudi3, cpu, ..."),
    "vendor": Option("only cells for nvidia, amd, cpu, gaudi or intel"),
    "image": Option("NAME  only cells of this image: torch, devel, ..."),
    "only": Option("GLOB  only cells whose id matches; `plan` lists them"),
    "json": Option("print the result as JSON on stdout"),
    "dry_run": Option("print what would be done, and do nothing"),
    "locked": Option("refuse to make or change locks (for CI)"),
    "allow_undetermined": Option("exit 0 if part is not determined (else 33)"),
    "channel": Option("NAME  channel of matrix.yaml (default release)"),
    "to": Option("HOST/PATH  another repository than the matrix's"),
    "key": Option("signing key: file, KMS address or keyless (default COSIGN_KEY)"),
    "trust": Option("KEY  public key of the signature, if another than ours"),
}


def selecting(**helps: str) -> Options:
    """Return the four options that make a `Selection`. `helps` are those that mean something
    else to one command; an empty one is hidden.
    """
    custom = {n: Option(text or COMMON[n].text, hidden=not text) for n, text in helps.items()}
    names = ("target", "vendor", "image", "only")
    return Options({name: ("", custom.get(name, COMMON[name])) for name in names}, Selection)


Chosen = Annotated[Selection, selecting()]


def _effort(*, hidden: bool = False) -> Options:
    each = {}
    for option in EFFORT_OPTIONS:
        default = option.default if option.default is False else str(option.default)
        each[option.name] = default, Option(option.help, hidden=hidden)
    return Options(each, read_effort)


HowMuch = Annotated[CheckOptions, _effort()]
# Of commands that generated workflows call.
HiddenEffort = Annotated[CheckOptions, _effort(hidden=True)]
AllowUndetermined = Annotated[bool, COMMON["allow_undetermined"]]
DryRun = Annotated[bool, COMMON["dry_run"]]
Locked = Annotated[bool, COMMON["locked"]]


class Ended(SystemExit):
    """The end of a command without success: its exit code, message, and a file's `problems`."""

    def __init__(self, message: str, code: int, problems: tuple[errors.Problem, ...] = ()) -> None:
        super().__init__(code)
        self.message, self.problems = shown(message), problems

    @property
    def document(self) -> Mapping[str, object]:
        """Return the end as JSON has it."""
        error, _, hint = self.message.removeprefix("error: ").partition("\nhint: ")
        problems = {"problems": self.problems} if self.problems else {}
        return {"error": error, "hint": hint, "exit_code": self.code, **problems}


def wrong_usage(message: str, hint: str, code: int) -> Ended:
    """Return the end of a command line that Click cannot read."""
    return Ended(f"error: {message}\nhint: {hint}", code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Commands with one first word. Without a command, the `default` one runs."""

    name: str
    help: str
    default: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of `warpfront`. `formerly` are old words for it: `scan`, `runner --prepare`."""

    words: tuple[str, ...]
    body: Callable[..., None]
    example: str
    groups: Mapping[str, Options]
    formerly: tuple[str, ...] = ()
    hidden: bool = False

    @property
    def each(self) -> Mapping[str, tuple[Any, Option]]:
        """Return default and help of every option by its name."""
        return _every(self.groups)

    @property
    def places(self) -> Mapping[str, Option]:
        """Return the words that follow the command, by their names."""
        return {n: o for n, (default, o) in self.each.items() if o.place or default is REQUIRED}

    @property
    def place(self) -> str:
        """Return the name of the first word that follows the command; "" if none does."""
        return next(iter(self.places), "")

    def run(self, selected: Mapping[str, Any], volume: Volume = Volume.NORMAL) -> None:
        """Run the command with the options given. Raise `Ended` for what is no success.

        SIGTERM becomes an exception; errors become exit codes here only.
        """
        is_shown = "display" in inspect.signature(self.body).parameters
        with (
            job_output(),
            _displayed(volume, as_json=bool(selected.get("json"))) as display,
            _errors_as_exit_codes(),
            terminable(),
            display,
        ):
            values = {n: _made(group, selected) for n, group in self.groups.items() if n != "json"}
            self.body(**({"display": display} if is_shown else {}), **values)


def command(
    words: str = "", *, example: str = "", formerly: tuple[str, ...] = (), hidden: bool = False
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function with annotated parameters; its words are the function's name
    if no others are given. `example` follows `$ warpfront` at the head of its help.
    """

    def declared(body: Callable[..., None]) -> Command:
        return Command(
            words=tuple((words or body.__name__.replace("_", "-")).split()),
            body=body,
            example=example,
            groups={**_option_groups(body), "json": _single("json", False, COMMON["json"])},  # noqa: FBT003
            formerly=formerly,
            hidden=hidden,
        )

    return declared


def _option_groups(declared: Callable[..., Any]) -> dict[str, Options]:
    """Return options by parameter or field. Raise `TypeError` for one without an annotation."""
    hints = get_type_hints(declared, include_extras=True)
    groups = {}
    for name, parameter in inspect.signature(declared).parameters.items():
        hint = hints[name]
        annotation = next(iter(getattr(hint, "__metadata__", ())), None)
        annotation = Option(annotation) if isinstance(annotation, str) else annotation
        if isinstance(annotation, Options):
            groups[name] = annotation
        elif isinstance(annotation, Option):
            groups[name] = _single(name, parameter.default, annotation)
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            groups[name] = _of_fields(hint)
        elif name != "display":
            raise TypeError(f"{declared.__name__}: {name} has no help: annotate an Option")
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
        is_text = isinstance(default, bool) or default is REQUIRED
        try:
            return value if is_text else type(default)(value)
        except ValueError:
            raise ValueError(f"{dashed(name)} {value!r} is no number") from None

    return Options({name: (default, option)}, make)


def _made(group: Options, selected: Mapping[str, Any]) -> Any:
    for name, (_, option) in group.each.items():
        value = selected.get(name) or ""
        if option.choices and value and value not in option.choices:
            hint = nearest(str(value), option.choices)
            raise Ended(f"error: {dashed(name)} {value!r}: {hint}", errors.USAGE_EXIT_CODE)
    try:
        return group.make(**{n: selected.get(n, default) for n, (default, _) in group.each.items()})
    except ValueError as error:
        raise Ended(f"error: {error}", errors.USAGE_EXIT_CODE) from None


@contextlib.contextmanager
def _displayed(volume: Volume, *, as_json: bool) -> Iterator[Display]:
    """Yield a command's display. With `as_json`, stdout is stderr meanwhile, and then gets one
    JSON value: the result of the command, or its error if it has no result.
    """
    display = Display(volume=volume, as_json=as_json)
    if not as_json:
        yield display
        return
    document: object = None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield display
        document = display.document
    except Ended as error:
        document = display.document if display.has_result else error.document
        raise
    finally:
        with _errors_as_exit_codes():
            print_json(document)


@contextlib.contextmanager
def _errors_as_exit_codes() -> Iterator[None]:
    """Print an error as what, where and what next, and exit with its own code."""
    try:
        yield
        sys.stdout.flush()
    except errors.WarpfrontError as error:
        hint = f"\nhint: {error.hint}" if error.hint else ""
        problems = error.problems if isinstance(error, errors.MatrixError) else ()
        raise Ended(f"error: {error.message}{hint}", error.exit_code, problems) from None
    except KeyboardInterrupt:
        raise Ended("interrupted", errors.INTERRUPTED_EXIT_CODE) from None
    except ModuleNotFoundError as error:
        if not (command := how_to_install(error)):
            raise Ended(_bug_report(), errors.BUG_EXIT_CODE) from None
        text = f"error: {error.name} is not installed\nhint: {command}"
        raise Ended(text, errors.CommandFailedError.exit_code) from None
    except Exception as error:  # noqa: BLE001 - a bug: the one place that shows a traceback
        if isinstance(error, BrokenPipeError):
            # The reader of stdout may have gone, as `head` goes after its lines.
            poll = select.poll()
            poll.register(sys.stdout.fileno(), 0)
            if any(event & select.POLLERR for _, event in poll.poll(0)):
                # The interpreter flushes the rest again when it ends.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise Ended("", errors.UNREAD_EXIT_CODE) from None
        raise Ended(_bug_report(), errors.BUG_EXIT_CODE) from None


def _bug_report() -> str:
    return f"this is a bug in warpfront\n{traceback.format_exc()}"
