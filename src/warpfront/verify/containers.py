"""Containers of `verify` and `compile`: their image, output and ending; and sessions of an
interrupted verification that count in the next one. Path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from warpfront.errors import FailureKind, NotVerifiedError, StoreError
from warpfront.images.built import BuiltImage
from warpfront.images.engine.protocol import Engine, RunRequest, RunResult
from warpfront.images.labels import CONTENT_HASH
from warpfront.matrix.cell import Cell
from warpfront.step_results import Blocked, Failed, failed_by
from warpfront.system.digests import digest_of
from warpfront.system.foreign import read_json, remove_tree
from warpfront.system.progress import Watch
from warpfront.system.store import Store, read_tree
from warpfront.system.tree_files import ImageFile
from warpfront.verify.results import Outcome
from warpfront.verify.verdict import read_session, worst_of
from warpfront_checks.check_options import CHECK_SESSIONS, CheckOptions
from warpfront_checks.results import PROGRESS

MEMORY_BYTES = 8 * 2**30
OUTPUT_LIMIT_CHARACTERS = 8 * 2**20


def built_image(store: Store, cell: Cell, engine: Engine) -> BuiltImage | Blocked | Failed:
    """Return the image of `build`, if the engine has that very content."""
    hint = f"warpfront build --only {cell.id}"
    blocked = partial(Blocked, cell_id=cell.id, step="verify", hint=hint)
    try:
        built = store.load(cell.id, "build", (BuiltImage, Blocked, Failed))
    except StoreError as error:
        return blocked(reason=error.message)
    if not isinstance(built, BuiltImage):
        return blocked(reason="not built" if built is None else f"not built: {built.reason}")
    image = engine.image(built.image_id)
    if image is None:
        return blocked(reason=f"the engine holds no image {built.image_id}")
    if image.labels.get(CONTENT_HASH) != built.content_hash:
        return not_verified(cell, f"{built.image_id} has another content hash than was built", hint)
    return built


def not_verified(cell: Cell, reason: str, hint: str, kind: FailureKind | None = None) -> Failed:
    failed = failed_by(NotVerifiedError(reason, hint=hint), cell.id, "verify")
    return replace(failed, kind=kind) if kind else failed


class Output:
    """The last of what a container printed, however much it was."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque()
        self._kept = 0
        self._dropped = 0

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._kept += len(line) + 1
        while self._kept > OUTPUT_LIMIT_CHARACTERS:
            self._kept -= len(self._lines.popleft()) + 1
            self._dropped += 1

    @property
    def text(self) -> str:
        head = [f"({self._dropped} lines before these were not kept)"] if self._dropped else []
        return "\n".join([*head, *self._lines]) + "\n"


def run_told(
    engine: Engine,
    request: RunRequest,
    watch: Watch,
    cell_id: str,
    also: Callable[[str], None] = lambda _line: None,
) -> tuple[RunResult, Output]:
    """Run a container to its end, with each line and the last counts of its checks to `watch`, and
    each line to `also`. Return how it ended, and what it printed.
    """
    output, counts = Output(), ""

    def heard(line: str) -> None:
        nonlocal counts
        output.add(line)
        also(line)
        if line.startswith(PROGRESS):
            counts = f"{line.removeprefix(PROGRESS)}; "
        watch.line(cell_id, counts + line.removeprefix(PROGRESS))

    return engine.run(request, on_line=heard), output


def ending_of(result: RunResult, *, limit_seconds: float) -> str:
    """Return how the container ended, if not by itself; for each missing result."""
    if result.oom_killed:
        return f"the container ran out of its {MEMORY_BYTES // 2**30} GiB of memory"
    if result.timed_out:
        return f"the container was stopped after {limit_seconds:g} s"
    return "" if result.exit_code in {0, 1} else f"the container exited with {result.exit_code}"


_RECORD = "attempt"
# Short, and it finds anew what all others rely on: that the image is the sealed one.
_ALWAYS_RUN = "load"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A verification that has begun and did not come to its end. `key` is the digest of all that
    its sessions depend on, `effort` has the seeds, `proven` is session -> time and results.
    """

    key: str
    effort: CheckOptions
    proven: Mapping[str, tuple[str, Any]] = field(default_factory=dict)


def attempt_key(packages: Iterable[Path], parts: Mapping[str, object]) -> str:
    """Return the digest of `parts` and of the packages that are mounted into the image."""
    code = {
        f"{package.name}/{name}": file.identity if isinstance(file, ImageFile) else file.reason
        for package in packages
        for name, file in read_tree(package).items()
        if "__pycache__" not in name
    }
    return digest_of({**parts, "code": code})


def continue_attempt(folder: Path, key: str, effort: CheckOptions, target: str) -> Attempt:
    """Begin an attempt, and take over what an earlier one of the same key has proven.

    Results are recorded, as the container can write their files. Without a run of its own choice,
    `effort` becomes the earlier one's, so that all seeds are of one run.
    """
    store = Store(folder.parent)
    before: Attempt | None = store.readable(folder.name, _RECORD, (Attempt,))
    chosen = effort.chosen and (before is None or effort.run != before.effort.run)
    if before is None or before.key != key or chosen:
        remove_tree(folder / "results")  # first: none is of the new key, whenever this ends
        attempt = Attempt(key=key, effort=effort)
    else:
        # Sessions that ended, and passed every check that they had planned.
        passed = {}
        for path in sorted((folder / "results").glob("*.json")):
            session = path.stem
            if session not in CHECK_SESSIONS or session in {_ALWAYS_RUN, *before.proven}:
                continue
            try:
                moment = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                end = moment.isoformat(timespec="seconds")
                results = read_json(path)
                checks = read_session(results, session=session, target=target)
            except (OSError, StoreError):
                continue
            if worst_of(check.outcome for check in checks) is Outcome.PASSED:
                passed[session] = (end, results)
        attempt = replace(before, proven={**before.proven, **passed})
    store.save(folder.name, _RECORD, attempt)
    return attempt


def discard(folder: Path) -> None:
    """Forget an attempt: it came to its end, or nothing of it counts."""
    Store(folder.parent).drop(folder.name, _RECORD)


def written_by(session: str, folder: Path) -> list[Path]:
    """Return the results of a session, and files named after it."""
    return [path for end in ".-_" for path in folder.glob(f"{session}{end}*")]
