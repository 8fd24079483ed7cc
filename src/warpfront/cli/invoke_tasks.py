"""invoke's tasks from the declared commands: `invoke build --target gfx942`.

invoke has no commands below a task: `release promote SOURCE` is `invoke release --promote SOURCE`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from warpfront.cli.tasks.declaring import REQUIRED, Command, Ended, Group, Option
from warpfront.errors import USAGE_EXIT_CODE

Each = Mapping[str, tuple[Any, Option]]


class _Task(Task[Any]):
    """A task whose options are declared ones."""

    def __init__(self, name: str, each: Each, run: Callable[..., None], doc: str) -> None:
        def body(_context: object, **options: Any) -> None:
            try:
                run({key: value for key, value in options.items() if value not in (None, [])})
            except Ended as exit_status:
                raise Exit(exit_status.message or None, code=int(str(exit_status.code))) from None

        body.__doc__ = doc
        super().__init__(body, name=name)
        self.each = each

    def get_arguments(
        self,
        ignore_unknown_help: bool | None = None,  # noqa: FBT001 - invoke's signature
    ) -> list[Argument]:
        del ignore_unknown_help
        return [_argument(name, default, option) for name, (default, option) in self.each.items()]


def _argument(name: str, default: Any, option: Option) -> Argument:
    dashed = name.strip("_").replace("_", "-")
    kind = bool if isinstance(default, bool) else list if default == () else str
    return Argument(
        names=(dashed, *filter(None, (option.short,)), *option.formerly),
        # An alias of itself would be found for ever.
        attr_name=name if name != dashed else None,
        kind=kind,
        default=False if kind is bool else None,
        help=option.help,
        positional=default is REQUIRED,
        optional=option.place,
    )


def _options(declared: Command) -> Each:
    """Return the options of a command; a word that may be missing is one of them for invoke."""
    return {
        name: (default, dataclasses.replace(option, place=False))
        for name, (default, option) in declared.each.items()
    }


def tasks_of(declared: Iterable[Command | Group]) -> Collection:
    """Return the declared commands as invoke's collection, also by their old names."""
    values = tuple(declared)
    commands = [value for value in values if isinstance(value, Command)]
    collection = Collection()
    for leaf in commands:
        olds = [old for old in leaf.formerly if "--" not in old]
        for name in [*leaf.words, *olds] if len(leaf.words) == 1 else olds:
            doc = leaf.body.__doc__ or ""
            collection.add_task(
                _Task(name, _options(leaf), lambda options, leaf=leaf: leaf.run(options), doc)
            )
    for group in values:
        if isinstance(group, Group):
            members = [leaf for leaf in commands if leaf.words[0] == group.name]
            collection.add_task(_group_task(group, members))
    return collection


def _group_task(group: Group, members: list[Command]) -> _Task:
    verbs: dict[str, Command] = {}
    for leaf in members:
        names = (leaf.words[1], *(old.partition("--")[2] for old in leaf.formerly))
        verbs |= dict.fromkeys(filter(None, names), leaf)
    pairs = (pair for leaf in reversed(members) for pair in _options(leaf).items())
    shared = {n: of for n, of in pairs if of[0] is not REQUIRED and n not in verbs}
    words: dict[str, tuple[Any, Option]] = {}
    for verb, leaf in verbs.items():
        says = (leaf.body.__doc__ or "").partition("\n")[0]
        words[verb] = "" if leaf.place else False, Option(says, place=bool(leaf.place))

    def run(selected: Mapping[str, Any]) -> None:
        chosen = [verb for verb in verbs if selected.get(verb)] or [group.default]
        if len(chosen) != 1 or not chosen[0]:
            options = ", ".join(f"--{leaf.words[1]}" for leaf in members if not leaf.hidden)
            raise Ended(f"error: {group.name} takes one of {options}", USAGE_EXIT_CODE)
        leaf = verbs[chosen[0]]
        values = {name: value for name, value in selected.items() if name in leaf.each}
        if leaf.place and isinstance(selected.get(chosen[0]), str):
            values[leaf.place] = selected[chosen[0]]
        leaf.run(values)

    return _Task(group.name, {**shared, **words}, run, group.help)
