"""The job of a container, which `checks.compiling` writes and reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpfront.matrix.cell import CompilerCall
from warpfront_checks.compiling.job import CompileJob, JobUnit, Probe
from warpfront_port.compile.units import SourceUnit, include_folders

SOURCE = "/source"
"""The mount of the tree, read-only."""
SCRATCH = "/tmp/warpfront"  # noqa: S108 - inside the container
COPY = f"{SCRATCH}/tree"
"""The copy that hipify and a setup.py may write to."""

# A kernel would need HIP's headers, which a source includes by itself.
_PROBE_KERNEL = "__device__ float probe(float x) { return x + 1.0f; }\n"
_PROBE_PLAIN = "int probe(int x) { return x + 1; }\n"


# The standard that current hipcc, nvcc and g++ share. torch's sources name that of its headers.
STANDARD = "-std=c++17"
_ADDRESS_SPACE = 4 * 2**30
"""Bytes, for the compiler of one source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileRequest:
    """A request to compile files of the tree at `repo` for `target`.

    `sources` are globs (none = the kernels in the tree), `include` folders of the tree, `flags`
    options of the compiler. `seconds` limits one source; `jobs` are compiled at a time.
    """

    repo: Path
    target: str
    sources: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hipify: bool = False
    seconds: float = 300.0
    jobs: int = 2


def job_document(
    request: CompileRequest,
    call: CompilerCall,
    units: Sequence[SourceUnit],
    files: Sequence[str],
    hipified: Sequence[str] = (),
) -> dict[str, object]:
    """Return the job as JSON values. `hipified` are those of the tree's `files` that hipify reads.

    In a command, `{source}`, `{output}` and `{work}` are replaced in the container; so is
    `{torch}`, by the options of its torch with the language standard.
    """
    needs_copy = hipified or any(unit.kind == "extension" for unit in units)
    root = COPY if hipified else SOURCE
    folders = request.include or include_folders(files)
    paths = (root if folder == "." else f"{root}/{folder}" for folder in folders)
    options = [*request.flags, *(f"-I{path}" for path in paths)]
    standard = [] if any(option.startswith("-std=") for option in options) else [STANDARD]
    listed: list[JobUnit] = []
    for unit in units:
        language = call.kernel if unit.kind == "kernel" else call.plain
        words = [*options, *(["{torch}"] if unit.torch else standard)]
        argv = _command(call, language, words) if unit.kind != "extension" and language else ()
        listed.append(JobUnit(path=unit.path, kind=unit.kind, torch=unit.torch, argv=argv))
    return CompileJob(
        target=request.target,
        source=Path(SOURCE),
        scratch=Path(SCRATCH),
        copy=Path(COPY),
        version=call.version,
        probe=Probe(
            text=_PROBE_KERNEL if call.kernel else _PROBE_PLAIN,
            name="probe.cu" if call.kernel else "probe.cpp",
            argv=_command(call, call.kernel or call.plain, []),
        ),
        torch_defines=call.torch_defines,
        environment=dict(call.environment),
        copied=tuple(files) if needs_copy else (),
        hipified=tuple(hipified),
        kept=call.kept,
        seconds=request.seconds,
        memory_bytes=_ADDRESS_SPACE,
        jobs=request.jobs,
        units=tuple(listed),
    ).document()


def _command(call: CompilerCall, language: Iterable[str], options: list[str]) -> tuple[str, ...]:
    work = [*call.work, "{work}"] if call.work else []
    return (*call.argv, *work, *options, *language, "-c", "{source}", "-o", "{output}")
