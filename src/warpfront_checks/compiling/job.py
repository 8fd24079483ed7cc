"""The job: written on the host, read in the container; and commands with their places filled in."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warpfront_checks.compiling.programs import Ended, ran
from warpfront_checks.documents import Reader

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class JobUnit:
    """A source to compile. `argv` has `{source}`, `{output}`, `{work}` and `{torch}` as words
    of its own; it is empty if this vendor's compiler does not take such a source.
    """

    path: str
    kind: str
    torch: bool
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A source that every compiler of the target takes, and its command."""

    name: str
    text: str
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CompileJob:
    """Sources to compile, their target and limits."""

    target: str
    source: Path
    scratch: Path
    copy: Path
    version: tuple[str, ...]
    probe: Probe
    torch_defines: tuple[str, ...]
    environment: Mapping[str, str]
    copied: tuple[str, ...]
    hipified: tuple[str, ...]
    kept: tuple[str, ...]
    seconds: float
    memory_bytes: int
    jobs: int
    units: tuple[JobUnit, ...]

    @property
    def root(self) -> Path:
        """Return the folder of the sources: the copy, once hipify changed it."""
        return self.copy if self.hipified else self.source

    def document(self) -> dict[str, object]:
        """Return the job as JSON values; `read_job` reads them back to an equal value."""
        values: dict[str, object] = json.loads(json.dumps(asdict(self), default=str))
        return {"schema": SCHEMA, **values}


def read_job(path: Path) -> CompileJob:
    """Read a job. Raise `ValueError` for one that this copy of the checks does not understand."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if document.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema is {document.get('schema')!r}, not {SCHEMA}")
    del document["schema"]
    return Reader(error=ValueError).record(CompileJob, document, "the job")


def filled(argv: Sequence[str], places: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the command with each place (`{source}`) replaced by its words; other words stay."""
    return tuple(word for part in argv for word in places.get(part, (part,)))


COPY_LIMIT_BYTES = 1 << 30
_HIPIFY_SECONDS = 120.0
_TORCH_HIPIFY = """
import json, sys
from torch.utils.hipify.hipify_python import hipify
copy, *files = sys.argv[1:]
done = hipify(project_directory=copy, output_directory=copy, includes=[f"{copy}/*"],
              extra_files=files, is_pytorch_extension=True, show_progress=False)
print("made=" + json.dumps({f: r.hipified_path for f, r in done.items() if r.hipified_path}))
"""


class CopyError(Exception):
    """The tree cannot be copied into the container's scratch folder."""


@dataclass(frozen=True, kw_only=True)
class Hipified:
    """The result of the copy: the tool, failed files with their reasons, renamed files by path."""

    tool: str
    said: dict[str, str]
    renamed: dict[str, str]


def copy_tree(job: CompileJob, files: Iterable[str]) -> None:
    """Copy the named files of the source to `job.copy`. Raise `CopyError` beyond the limit."""
    total = 0
    for name in files:
        target = job.copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        total += (job.source / name).stat().st_size
        if total > COPY_LIMIT_BYTES:
            raise CopyError(f"the tree is larger than {COPY_LIMIT_BYTES >> 20} MiB")
        shutil.copyfile(job.source / name, target)


def hipify_copy(job: CompileJob, results: Path, *, torch: bool) -> Hipified:
    """Run hipify over `job.hipified` in the copy; its output is also in `results/hipified`.

    torch's tool, if torch is there: it knows torch's own names too.
    """
    copy = _with_torch(job) if torch else _with_perl(job)
    for name in job.hipified:
        translated = job.copy / copy.renamed.get(name, name)
        target = results / "hipified" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(translated, target)
    return copy


def _with_perl(job: CompileJob) -> Hipified:
    def translate(name: str) -> str:
        work = job.scratch / "hipify" / name
        work.mkdir(parents=True, exist_ok=True)
        argv = ("hipify-perl", "-o", str(work / "made"), str(job.copy / name))
        completed = ran(argv, seconds=_HIPIFY_SECONDS, memory_bytes=job.memory_bytes, cwd=work)
        if completed.returncode == 0:
            shutil.move(work / "made", job.copy / name)
            return ""
        return _why(completed)

    with ThreadPoolExecutor(job.jobs) as pool:
        problems = dict(zip(job.hipified, pool.map(translate, job.hipified), strict=True))
    failures = {name: why for name, why in problems.items() if why}
    return Hipified(tool="hipify-perl", said=failures, renamed={})


def _with_torch(job: CompileJob) -> Hipified:
    work = job.scratch / "hipify"
    work.mkdir(parents=True, exist_ok=True)
    files = [str(job.copy / name) for name in job.hipified]
    argv = (sys.executable, "-c", _TORCH_HIPIFY, str(job.copy), *files)
    seconds = job.seconds + len(files)
    completed = ran(argv, seconds=seconds, memory_bytes=1 << 40, cwd=work)
    line = next((line for line in completed.output.splitlines() if line.startswith("made=")), "")
    if completed.returncode != 0 or not line:
        problems = dict.fromkeys(job.hipified, _why(completed))
        return Hipified(tool="torch.utils.hipify", said=problems, renamed={})
    renames, root = json.loads(line.removeprefix("made=")), f"{job.copy}/"
    renamed = {
        name.removeprefix(root): path.removeprefix(root)
        for name, path in renames.items()
        if name.startswith(root) and path.startswith(root) and name != path
    }
    return Hipified(tool="torch.utils.hipify", said={}, renamed=renamed)


def _why(completed: Ended) -> str:
    if completed.missing:
        return f"no {completed.argv[0]} in this image"
    if completed.returncode is None:
        return f"{Path(completed.argv[0]).name} was stopped after {completed.seconds:.0f} s"
    lines: Sequence[str] = completed.output.strip().splitlines() or ("it said nothing",)
    return f"{Path(completed.argv[0]).name} exited with {completed.returncode}: {lines[-1]}"
