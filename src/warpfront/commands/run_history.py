"""chronicle: the history of runs and the times of nights as files on a branch of the project's own
repository, which only grow; two runs that end at once are both in them.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from warpfront.errors import CommandFailedError, UnavailableError
from warpfront.system.process import Command, Completed, Run
from warpfront.system.store import read_text

RUNS = "runs.jsonl"
NIGHTS = "nights.jsonl"
FILES = (RUNS, NIGHTS)
TOKEN_VARIABLE = "HISTORY_TOKEN"  # noqa: S105 - the name of one
_TRIES = 5
_WHO = {
    name: value
    for role in ("AUTHOR", "COMMITTER")
    for name, value in (
        (f"GIT_{role}_NAME", "warpfront"),
        (f"GIT_{role}_EMAIL", "warpfront@users.noreply.github.com"),
    )
}


@contextmanager
def branch_history(
    branch: str, root: Path, run: Run, environment: Mapping[str, str]
) -> Iterator[Path]:
    """Yield a folder with the files of the branch of `origin`. Added lines are pushed at the
    end, below lines that another run has added meanwhile. Raise `UnavailableError`.
    """
    git = _Git(root, run, _login(environment))
    with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
        before = git.fetched(branch)[1]
        for name, text in before.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        yield Path(folder)
        now = {name: read_text(Path(folder, name)) or "" for name in FILES}
        added = {name: now[name].removeprefix(before[name]) for name in FILES}
        if any(added.values()):
            git.append(branch, added)


def _login(environment: Mapping[str, str]) -> dict[str, str]:
    """Return git's arguments for a login that no other process can read."""
    token = environment.get(TOKEN_VARIABLE, "")
    if not token:
        return {}
    basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "http.https://github.com/.extraheader",
        "GIT_CONFIG_VALUE_0": f"AUTHORIZATION: basic {basic}",
    }


class _Git:
    """git in a repository, by plumbing: nothing is checked out, and no branch moves here."""

    def __init__(self, root: Path, run: Run, login: Mapping[str, str]) -> None:
        self._root = root
        self._run = run
        self._environment = {**_WHO, **login, "GIT_TERMINAL_PROMPT": "0"}

    def fetched(self, branch: str) -> tuple[str, Mapping[str, str]]:
        """Return (commit, text by file) at the branch's end; "" where there is no
        such branch yet.
        """
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
        raise UnavailableError(
            f"the history cannot be pushed to {branch}: {last}",
            hint=f"{TOKEN_VARIABLE} has to hold a token that may write contents",
        )

    def _commit(self, texts: Mapping[str, str], parent: str) -> str:
        blobs = {
            name: self._git("hash-object", "-w", "--stdin", stdin=text).strip()
            for name, text in texts.items()
            if text
        }
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
