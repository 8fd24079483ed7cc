"""invoke's tasks from the declared commands: `invoke build --target gfx942`.

invoke has no commands below a task: `release promote SOURCE` is `invoke release --promote SOURCE`.
"""

from __future__ import annotations

import dataclasses
import functools
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
        def body(_context: object, **given: Any) -> None:
            try:
                run({key: value for key, value in given.items() if value not in (None, [])})
            except Ended as ended:
                raise Exit(ended.message or None, code=int(str(ended.code))) from None

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


def _run(declared: Command, given: Mapping[str, Any]) -> None:
    declared.run(given)


def tasks_of(declared: Iterable[Command | Group]) -> Collection:
    """Return the declared commands as invoke's collection, also by their old names."""
    values = tuple(declared)
    commands = [value for value in values if isinstance(value, Command)]
    collection = Collection()
    for one in commands:
        names = [*one.words, *(old for old in one.formerly if "--" not in old)]
        for name in names if len(one.words) == 1 else names[len(one.words) :]:
            task = _Task(name, _options(one), functools.partial(_run, one), one.body.__doc__ or "")
            collection.add_task(task)
    for group in values:
        if isinstance(group, Group):
            members = [one for one in commands if one.words[0] == group.name]
            collection.add_task(_group_task(group, members))
    return collection


def _group_task(group: Group, members: list[Command]) -> _Task:
    verbs = {
        verb: one
        for one in members
        for verb in (one.words[1], *(old.partition("--")[2] for old in one.formerly))
        if verb
    }
    own = {
        name: pair
        for one in reversed(members)
        for name, pair in _options(one).items()
        if pair[0] is not REQUIRED and name not in verbs
    }
    words = {
        verb: (
            "" if one.place else False,
            Option((one.body.__doc__ or "").partition("\n")[0], place=bool(one.place)),
        )
        for verb, one in verbs.items()
    }

    def run(given: Mapping[str, Any]) -> None:
        chosen = [verb for verb in verbs if given.get(verb)] or [group.default]
        if len(chosen) != 1 or not chosen[0]:
            options = ", ".join(f"--{one.words[1]}" for one in members if not one.hidden)
            raise Ended(f"error: {group.name} takes one of {options}", USAGE_EXIT_CODE)
        one = verbs[chosen[0]]
        values = {name: value for name, value in given.items() if name in one.each}
        if one.place and isinstance(given.get(chosen[0]), str):
            values[one.place] = given[chosen[0]]
        one.run(values)

    return _Task(group.name, {**own, **words}, run, group.help)
