"""page: the report as one file that opens anywhere, and the history that it shows: runs and times
of nights as files on a branch of the project.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from warpfront.bench.nights import night_of, shifts_of, trends_of
from warpfront.commands.measurements import read_benches, read_nights_of
from warpfront.errors import CommandFailedError, UnavailableError
from warpfront.matrix.cell import Cell
from warpfront.release.tag_contents import TagPage
from warpfront.release.tag_contents_of import PAGE
from warpfront.report.history import Trend, history_line, read_history, value_line
from warpfront.report.page import page_html, state_of
from warpfront.report.rows import NOT_RUN, ReportRow
from warpfront.system.process import Command, Completed, Run
from warpfront.system.progress import Watch
from warpfront.system.store import Store, append_text, read_text, scratch_folder, write_text
from warpfront.system.texts import counted
from warpfront.system.tree_files import Provenance
from warpfront.verify.results import Verification


def write_page(
    path: Path,
    rows: Iterable[ReportRow],
    cells: Mapping[str, Cell],
    store: Store,
    *,
    provenance: Provenance,
    history: Path | None,
    nights: Path | None = None,
    watch: Watch,
) -> None:
    """The page of `rows`, with the runs before it from `history`, to which this one is added, and
    the times of `nights`, to which go those that were taken in this one.
    """
    rows = tuple(rows)
    runs, unread = read_history(read_text(history, missing_ok=True) or "") if history else ((), 0)
    if unread:
        watch.say(f"warning: {history}: {unread} lines are no runs, and were left out")
    paths = {cell: store.log_path(cell).resolve() for cell in {row.cell_id for row in rows}}
    folder = path.parent.resolve()
    logs = {cell: os.path.relpath(log, folder) for cell, log in paths.items() if log.is_file()}
    published = (store.readable(cell_id, PAGE, (TagPage,)) for cell_id in cells)
    commit = f" of {provenance.revision[:12]}" if provenance.revision else ""
    trends: tuple[Trend, ...] = ()
    if nights:
        earlier = read_nights_of(nights, watch) if nights.exists() else ()
        records = (store.cell_folder(row.cell_id) / f"bench-{row.target}.json" for row in rows)
        benches = [night_of(bench) for file in records for bench in read_benches(file, watch)]
        keys = {(night.place, night.at) for night in earlier}
        added = [night for night in benches if (night.place, night.at) not in keys]
        if added:
            append_text(nights, "".join(map(value_line, added)))
        every = (*earlier, *added)
        trends = trends_of(every, shifts_of(every))
    text = page_html(
        [(cells[row.cell_id], row) for row in rows],
        title=f"{next(iter(cells.values())).project}: every cell",
        made=f"{counted(len(rows), 'result')}{commit}, {provenance.created}",
        past=runs,
        logs=logs,
        trends=trends,
        published=filter(None, published),
    )
    write_text(path, text)
    if history:
        verifications: dict[tuple[str, str], Verification] = {}
        for row in (row for row in rows if row.verify != NOT_RUN):
            result = store.readable(row.cell_id, f"verify-{row.target}", (Verification,))
            verifications |= {(row.cell_id, row.target): result} if result else {}
        states = [(row, state_of(row)) for row in rows]
        created, revision = provenance.created, provenance.revision
        line = history_line(states, made=created, revision=revision, verifications=verifications)
        append_text(history, line)
    watch.say(f"wrote {path}")


RUNS = "runs.jsonl"
NIGHTS = "nights.jsonl"
FILES = (RUNS, NIGHTS)
TOKEN_VARIABLE = "HISTORY_TOKEN"  # noqa: S105 - the name of one
_TRIES = 5
_EMAIL = "warpfront@users.noreply.github.com"
_WHO = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "warpfront"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), _EMAIL),
}


@contextmanager
def branch_history(
    branch: str, root: Path, run: Run, environment: Mapping[str, str]
) -> Iterator[Path]:
    """Yield a folder with the files of the branch of `origin`. Added lines are pushed at the
    end, below lines that another run has added meanwhile. Raise `UnavailableError`.
    """
    login = {}
    if token := environment.get(TOKEN_VARIABLE, ""):
        # In the environment of git, which no other user's process can read.
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        login = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.https://github.com/.extraheader",
            "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {basic}",
        }
    git = _Git(root, run, login)
    with scratch_folder() as folder:
        before = git.fetched(branch)[1]
        for name, text in before.items():
            (folder / name).write_text(text, encoding="utf-8")
        yield folder
        now = {name: read_text(folder / name) or "" for name in FILES}
        added = {name: now[name].removeprefix(before[name]) for name in FILES}
        if any(added.values()):
            git.append(branch, added)


class _Git:
    """git in a repository, by plumbing: nothing is checked out, and no branch moves here."""

    def __init__(self, root: Path, run: Run, login: Mapping[str, str]) -> None:
        self._root = root
        self._run = run
        self._environment = {**_WHO, **login, "GIT_TERMINAL_PROMPT": "0"}

    def fetched(self, branch: str) -> tuple[str, Mapping[str, str]]:
        """Return (commit, text by file) at the branch's end; "" without such a branch."""
        listed = self._git("ls-remote", "--heads", "origin", f"refs/heads/{branch}")
        commit = listed.split()[0] if listed.strip() else ""
        if not commit:
            return "", dict.fromkeys(FILES, "")
        self._git("fetch", "--quiet", "--depth=1", "origin", commit)
        texts = {name: self._tried("show", f"{commit}:{name}") for name in FILES}
        return commit, {n: text.stdout if text.returncode == 0 else "" for n, text in texts.items()}

    def append(self, branch: str, added: Mapping[str, str]) -> None:
        reason = ""
        for _ in range(_TRIES):
            commit, texts = self.fetched(branch)
            new_commit = self._commit({name: texts[name] + added[name] for name in FILES}, commit)
            push = self._tried("push", "--quiet", "origin", f"{new_commit}:refs/heads/{branch}")
            if push.returncode == 0:
                return
            reason = push.stderr.strip()
        last = (reason or "no word").splitlines()[-1]
        hint = f"{TOKEN_VARIABLE} has to hold a token that may write contents"
        raise UnavailableError(f"the history cannot be pushed to {branch}: {last}", hint=hint)

    def _commit(self, texts: Mapping[str, str], parent: str) -> str:
        blobs = {}
        for name, text in texts.items():
            if text:
                blobs[name] = self._git("hash-object", "-w", "--stdin", stdin=text).strip()
        listed = "".join(f"100644 blob {blobs[name]}\t{name}\n" for name in sorted(blobs))
        tree = self._git("mktree", stdin=listed).strip()
        parents = ("-p", parent) if parent else ()
        return self._git("commit-tree", tree, *parents, "-m", "A run").strip()

    def _git(self, *words: str, stdin: str | None = None) -> str:
        try:
            return self._tried(*words, stdin=stdin).check().stdout
        except CommandFailedError as error:
            last = str(error).splitlines()[-1]
            hint = "the checkout needs a remote `origin` that it may read"
            raise UnavailableError(f"no history: {last}", hint=hint) from None

    def _tried(self, *words: str, stdin: str | None = None) -> Completed:
        command = Command(
            argv=("git", *words),
            cwd=self._root,
            environment=self._environment,
            stdin=stdin,
            timeout_seconds=120.0,
        )
        return self._run(command)
