"""`warpfront GROUP COMMAND`: Click's commands from the declared ones.

Click reads words, completes them in shells and names what is near to an unknown one; the help, the
exit codes and the old words of a command are here.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from warpfront import __version__
from warpfront.cli.display import Volume
from warpfront.cli.job_output import job_output
from warpfront.cli.loading import MODULES, declared_in, installed_modules, modules_naming
from warpfront.cli.tasks.declaring import (
    COMMON,
    REQUIRED,
    Command,
    Ended,
    Group,
    Option,
    dashed,
    wrong_usage,
)
from warpfront.cli.tasks.showing import print_json
from warpfront.errors import INTERRUPTED_EXIT_CODE, UNREAD_EXIT_CODE
from warpfront.matrix.selection import nearest
from warpfront.pipeline import STEPS

WIDTH = 80
# `--help` lists them first.
PATH = ("init", "add", *STEPS)
OLD = "__old"  # ends the name of a parameter that is an old spelling of another


_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _note(old: str, new: str) -> None:
    print(f"note: `{old}` is `{new}` now; the next release drops the old form", file=sys.stderr)


def _parameters(declared: Command) -> Iterator[click.Parameter]:
    for name, (default, option) in declared.each.items():
        metavar = option.metavar(name)
        complete = functools.partial(_complete, name, option.choices)
        if name in declared.places:
            yield click.Argument([name], required=False, metavar=metavar, shell_complete=complete)
            dashes = [dashed(name), f"{name}{OLD}", *([f"-{name}"] if len(name) == 1 else [])]
            yield click.Option(dashes, hidden=True, metavar=metavar)
            continue
        short = [f"-{option.short}"] if option.short else []
        yield click.Option(
            [name, *short, dashed(name), *(f"--{old}" for old in option.formerly)],
            help=option.help,
            hidden=option.hidden,
            metavar=None if isinstance(default, bool) else metavar,
            multiple=default == (),
            # False would make the value optional, and `-5%` an option of its own.
            is_flag=isinstance(default, bool) or None,
            shell_complete=complete,
        )


def _everywhere() -> list[click.Parameter]:
    """Return the options of every command and of the program itself."""

    def change_folder(_ctx: click.Context, _parameter: click.Parameter, folder: str | None) -> None:
        if folder:
            os.chdir(folder)

    def set_volume(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001
        if value:
            ctx.find_root().meta["volume"] = Volume(parameter.name)

    folder: dict[str, Any] = {"type": click.Path(exists=True, file_okay=False), "is_eager": True}
    folder |= {"callback": change_folder, "metavar": "DIR", "expose_value": False}
    volume: dict[str, Any] = {"is_flag": True, "callback": set_volume, "expose_value": False}
    says = "start in DIR; matrix.yaml is there or above"
    every_line = "print every line of the programs that run"
    return [
        click.Option(["-C", "--project"], help=says, **folder),
        click.Option(["-q", "--quiet"], help="print no progress", **volume),
        click.Option(["-v", "--verbose"], help=every_line, **volume),
    ]


def _complete(
    name: str, choices: tuple[str, ...], _ctx: click.Context, _parameter: click.Parameter, word: str
) -> list[CompletionItem]:
    """Return an option's choices, or its values in the matrix here if it selects cells."""
    from warpfront.errors import WarpfrontError  # noqa: PLC0415 - only a shell needs it
    from warpfront.matrix.selection import values_of  # noqa: PLC0415
    from warpfront.pipeline.workspace import open_workspace, root_of  # noqa: PLC0415

    values: Iterable[str] = choices
    if name in {"target", "vendor", "image", "only"}:
        try:
            cells = open_workspace(root_of(Path.cwd())).matrix.cells
        except WarpfrontError:
            return []
        values = dict.fromkeys(value for cell in cells for value in values_of(cell, name))
    elif not choices:
        return [CompletionItem(word, type="file")]
    return [CompletionItem(value) for value in values if value.startswith(word)]


class _Leaf(click.Command):
    """A declared command."""

    def __init__(self, declared: Command) -> None:
        super().__init__(
            name=declared.words[-1],
            params=[*_parameters(declared), *_everywhere()],
            callback=self._run,
            help=declared.body.__doc__,
            hidden=declared.hidden,
            context_settings=_SETTINGS,
        )
        self.declared = declared

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words, and print a note for each old one."""
        for name, (_, option) in self.declared.each.items():
            is_word = name in self.declared.places
            for old in [dashed(name)] if is_word else [f"--{old}" for old in option.formerly]:
                if any(word.partition("=")[0] in {old, f"-{name}"} for word in args):
                    _note(old, option.metavar(name) if is_word else dashed(name))
        return super().parse_args(ctx, args)

    def _run(self, **values: Any) -> None:
        options = {name: value for name, value in values.items() if value not in (None, False, ())}
        for name in [name for name in options if name.endswith(OLD)]:
            options.setdefault(name.removesuffix(OLD), options.pop(name))
        for name, (default, option) in self.declared.each.items():
            if default is REQUIRED and name not in options:
                raise click.UsageError(f"{option.metavar(name)} is missing")
        volume = click.get_current_context().find_root().meta.get("volume", Volume.NORMAL)
        self.declared.run(options, volume)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write an example, the sentences, the words and options, and the common ones' names."""
        if self.declared.example:
            formatter.write(f"$ warpfront {self.declared.example}\n\n")
        formatter.write(f"{cleandoc(self.help or '')}\n\n")
        each, places = self.declared.each, self.declared.places
        names = (
            (option.metavar(name), each[name][0] is REQUIRED) for name, option in places.items()
        )
        words = [name if is_required else f"[{name}]" for name, is_required in names]
        rows = [(option.metavar(name), option.help) for name, option in places.items()]
        formatter.write(f"usage: {' '.join((ctx.command_path, *words))} [OPTIONS]\n")
        rows += [
            (_names_of(name, default, option), option.help)
            for name, (default, option) in each.items()
            if not (name in places or option.hidden or COMMON.get(name) is option)
        ]
        if rows:
            formatter.write("\n")
            formatter.write_dl(rows, col_max=26)
        shared = [dashed(n) for n, o in COMMON.items() if each.get(n, (0, None))[1] is o]
        if shared:
            formatter.write("\n")
            formatter.write_text(f"common options (warpfront docs options): {' '.join(shared)}")


def _names_of(name: str, default: Any, option: Option) -> str:
    metavar = "" if isinstance(default, bool) else f" {option.metavar(name)}"
    short = f"-{option.short}, " if option.short else ""
    return f"{short}{dashed(name)}{metavar}"


class _Family(click.Group):
    """The commands of a group."""

    def __init__(self, group: Group, members: list[Command]) -> None:
        super().__init__(
            name=group.name,
            help=group.help,
            commands={member.words[-1]: _Leaf(member) for member in members},
            params=_everywhere(),
            no_args_is_help=not group.default,
            context_settings=_SETTINGS,
        )
        self.declared = group
        self.example = next(member.example for member in members if not member.hidden)
        self.verbs = {member.words[1]: member.words[1] for member in members}
        for member in members:
            olds = (old.partition("--")[2] for old in member.formerly if "--" in old)
            self.verbs |= dict.fromkeys(olds, member.words[1])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if ctx.resilient_parsing else self._current(args))

    def _current(self, args: list[str]) -> list[str]:
        """Return the words with a verb that was written as an option, as the command that it is."""
        if args and not args[0].startswith("-"):
            return args
        for place, word in enumerate(args):
            name, _, value = word.removeprefix("--").partition("=")
            if word.startswith("--") and name in self.verbs:
                verb = self.verbs[name]
                _note(f"{self.name} --{name}", f"{self.name} {verb}")
                return [verb, *args[:place], *([value] if value else []), *args[place + 1 :]]
        if {"-h", "--help"} & set(args) or not self.declared.default:
            return args
        return [*self.declared.default.split(), *args]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"$ warpfront {self.example}\n\n{cleandoc(self.help or '')}\n\n")
        formatter.write(f"usage: {ctx.command_path} COMMAND [OPTIONS]\n\n")
        formatter.write_dl(_summaries(self.commands.values()), col_max=26)


def _summaries(commands: Any) -> list[tuple[str, str]]:
    firsts = ((command, cleandoc(command.help or "").partition("\n\n")[0]) for command in commands)
    return [(command.name, first) for command, first in firsts if not command.hidden]


class Program(click.Group):
    """`warpfront`: it imports the modules of the commands that the words name."""

    def __init__(self) -> None:
        super().__init__(
            name="warpfront",
            params=_everywhere(),
            context_settings={**_SETTINGS, "max_content_width": WIDTH},
        )
        click.version_option(__version__, message="warpfront %(version)s")(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        every = declared_in((*MODULES, *installed_modules()))
        names = {v.name if isinstance(v, Group) else v.words[0]: None for v in every}
        return sorted(names, key=lambda name: PATH.index(name) if name in PATH else 99)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        declared = tuple(declared_in(modules_naming({cmd_name})))
        commands = [leaf for leaf in declared if isinstance(leaf, Command)]
        for value in declared:
            if isinstance(value, Group) and value.name == cmd_name:
                return _Family(value, [leaf for leaf in commands if leaf.words[0] == cmd_name])
        named = [leaf for leaf in commands if leaf.words == (cmd_name,)]
        named += [leaf for leaf in commands if cmd_name in leaf.formerly]
        return _Leaf(named[0]) if named else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Raise `UsageError` with the nearest for an unknown one."""
        command = self.get_command(ctx, args[0])
        if command is None and not ctx.resilient_parsing:
            hint = nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"there is no command {args[0]!r}: {hint}", ctx)
        if isinstance(command, _Leaf) and args[0] in command.declared.formerly:
            _note(args[0], " ".join(command.declared.words))
        return args[0], command, args[1:]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        groups = [c for c in commands if isinstance(c, _Family) and c.name not in PATH]
        formatter.write(
            "$ warpfront plan\n\nBuild, verify and publish GPU images for PyTorch from one "
            "matrix.yaml.\n\nusage: warpfront [GROUP] COMMAND [ARGS]\n"
        )
        sections = (
            ("From a matrix to a published image", [c for c in commands if c and c.name in PATH]),
            ("Groups", groups),
            ("More", [c for c in commands if c not in groups and c and c.name not in PATH]),
        )
        for title, members in sections:
            formatter.write(f"\n{title}:\n")
            formatter.indent()
            formatter.write_dl(_summaries(members), col_max=26)
            formatter.dedent()
        formatter.write("\noptions of every command: warpfront docs options\n")


def common_options() -> str:
    """Return the options that many commands have, as help lists them."""
    formatter = click.HelpFormatter(width=WIDTH)
    flags = {"json", "dry_run", "locked", "allow_undetermined"}
    rows = [(_names_of(n, n in flags or "", option), option.help) for n, option in COMMON.items()]
    shared = [p for p in _everywhere() if isinstance(p, click.Option)]
    rows += [(", ".join(p.opts) + (" DIR" if p.metavar else ""), p.help or "") for p in shared]
    formatter.write_dl([*rows, ("-h, --help", "print the help of a command")], col_max=26)
    return formatter.getvalue()


def run(words: list[str]) -> int:
    """Run a command line, without the program's name; its exit code."""
    cut = words.index("--") if "--" in words else len(words)
    try:
        status = Program().main(words[:cut], prog_name="warpfront", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "warpfront"
        usage = wrong_usage(error.format_message(), f"`{where} --help`", error.exit_code)
        print(usage.message, file=sys.stderr)
        if "--json" in words[:cut]:
            print_json(usage.document)
        return error.exit_code
    except click.Abort:
        return INTERRUPTED_EXIT_CODE
    except Ended as status:
        if status.message:
            print(status.message, file=sys.stderr)
        return int(str(status.code))
    except BrokenPipeError:
        # `--help | head`: the interpreter flushes the rest again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD_EXIT_CODE


def main() -> None:
    with job_output():
        code = run(sys.argv[1:])
    raise SystemExit(code)
