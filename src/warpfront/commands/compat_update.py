"""compat: read the indexes of the compat table, and write their contents.

Each index is read whole or not at all: one that cannot be reached, or contradicts itself, keeps the
contents of its last reading, and is named with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from warpfront.ci.forge_api import ForgeApi, Proposal
from warpfront.errors import InputError, StaleError, without_secrets
from warpfront.matrix.compat_table import Table
from warpfront.matrix.index_contents import Contents, IndexContents, Releases
from warpfront.matrix.index_evidence import (
    changes,
    contradictions,
    dump_contents,
    names_by_url,
    updated,
    wanted_releases,
)
from warpfront.pipeline.workspace import contents_path
from warpfront.system.progress import Watch
from warpfront.system.store import read_text, write_text
from warpfront.system.texts import counted
from warpfront.wheels.index_survey import survey_index
from warpfront.wheels.sources import NoAnswer, Site

BRANCH = "warpfront-compat"
"""The branch of the weekly pull request: one is open at a time."""

_SHOWN_LINES = 200
_HOW = "`warpfront compat update`, and commit the result"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The result of one reading of the indexes. `changes`, `contradictions` and `unread` are
    sentences; `unread` names each index that was not read, with the reason.
    """

    contents: Contents
    changes: tuple[str, ...]
    contradictions: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the project's file with these contents."""
        return dump_contents(self.contents)

    def is_current(self, root: Path) -> bool:
        return read_text(contents_path(root), missing_ok=True) == self.text


def read_indexes(
    table: Table,
    before: Contents,
    *,
    site: Site,
    addresses: Mapping[str, str],
    today: str,
    watch: Watch,
) -> Update:
    """Read each index of `table`. `addresses` are those that a project gives indexes instead of
    the table's; contents are filed under the table's own.
    """
    indexes: dict[str, IndexContents] = dict(before.indexes)
    lines: list[str] = []
    unread: list[str] = []

    def survey(url: str, names: Sequence[str]) -> Releases | NoAnswer:
        of_url = (name for name, index in table.indexes.items() if index.url == url)
        address = next((addresses[name] for name in of_url if name in addresses), url)
        recorded = before.indexes[url].wheels if url in before.indexes else {}

        def wanted(name: str, versions: Collection[Version]) -> frozenset[Version]:
            """Return the releases to read: the wanted ones, and all recorded ones."""
            return wanted_releases(table, name, versions) | {*map(Version, recorded.get(name, {}))}

        return survey_index(address, names, known=recorded, wanted=wanted, site=site)

    every = names_by_url(table)
    watch.step("compat", f"reading {counted(len(every), 'index', 'indexes')}")
    with ThreadPoolExecutor(4) as pool:
        answers = dict(zip(every, pool.map(survey, every, every.values()), strict=True))
    for url, answer in answers.items():
        if isinstance(answer, NoAnswer):
            unread.append(without_secrets(str(answer)))
            continue
        recorded = before.indexes.get(url)
        indexes[url] = updated(recorded, answer, today=today)
        lines += changes(url, recorded, indexes[url])
    watch.step("compat", "")
    contents = Contents(indexes=indexes)
    contradicted = contradictions(table, contents)
    return Update(
        contents=dataclasses.replace(contents, contradictions=contradicted),
        changes=tuple(lines),
        contradictions=contradicted,
        unread=tuple(unread),
    )


def update_text(update: Update) -> str:
    """Return the update as lines for people."""
    lines = [
        *update.changes,
        *(f"contradicts a row: {contradiction}" for contradiction in update.contradictions),
        *(f"not read: {line}" for line in update.unread),
    ]
    return "".join(f"{line}\n" for line in lines) or "the file is current\n"


def write_contents(update: Update, root: Path) -> bool:
    """Write the contents to the project's file, and return whether that changed it."""
    if is_new := not update.is_current(root):
        write_text(contents_path(root), update.text)
    return is_new


def refuse_stale(update: Update, root: Path) -> None:
    """Raise `StaleError` where the project's file is not current."""
    if not update.is_current(root):
        count = counted(len(update.changes), "change")
        raise StaleError(f"{contents_path(root).name}: {count} since it was written", hint=_HOW)


def propose_update(update: Update, root: Path, api: ForgeApi | None) -> str:
    """Open or update the pull request with the contents, where they are not what is committed.
    Return what was done. Raise `InputError` outside of a job of CI.
    """
    if update.is_current(root):
        return "nothing changed, nothing is proposed"
    if api is None:
        place = "`--propose` is for a job of CI with API_TOKEN"
        raise InputError(f"no interface for pull requests: {place}", hint=_HOW)
    lines = update_text(update).splitlines()
    listing = "".join(f"- {line}\n" for line in lines[:_SHOWN_LINES])
    rest = len(lines) - _SHOWN_LINES
    change = Proposal(
        branch=BRANCH,
        path=contents_path(root).resolve().relative_to(root.resolve()).as_posix(),
        text=update.text,
        title="Update the contents of wheel indexes",
        body=listing + (f"- and {rest} more lines\n" if rest > 0 else ""),
    )
    return f"proposed: {api.propose(change)}"
