"""The job of a container, which `checks.compiling` writes and reads. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from warpfront.matrix.cell import CompilerCall
from warpfront_checks.compiling.job import CompileJob, JobUnit, Probe
from warpfront_port.compile.units import SourceUnit

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of one source: seconds, and bytes of address space of its compiler."""

    seconds: float = 300.0
    memory_bytes: int = 4 * 2**30
    jobs: int = 2


def job_document(
    *,
    target: str,
    call: CompilerCall,
    units: Iterable[SourceUnit],
    folders: Iterable[str],
    flags: Iterable[str],
    copied: Iterable[str] = (),
    hipified: Iterable[str] = (),
    bounds: Bounds,
) -> dict[str, object]:
    """Return the job as JSON values.

    `folders` and `flags` go to every source; `copied` are the files that a setup.py and hipify find
    in the copy, `hipified` those of them that hipify reads. In a command, `{source}`, `{output}`
    and `{work}` are replaced in the container; so is `{torch}`, by the options of its torch with
    the language standard.
    """
    hipified = tuple(hipified)
    root = COPY if hipified else SOURCE
    paths = (root if folder == "." else f"{root}/{folder}" for folder in folders)
    options = [*flags, *(f"-I{path}" for path in paths)]
    standard = [] if any(option.startswith("-std=") for option in options) else [STANDARD]
    listed: list[JobUnit] = []
    for unit in units:
        language = call.kernel if unit.kind == "kernel" else call.plain
        words = [*options, *(["{torch}"] if unit.torch else standard)]
        argv = _command(call, language, words) if unit.kind != "extension" and language else ()
        listed.append(JobUnit(path=unit.path, kind=unit.kind, torch=unit.torch, argv=argv))
    return CompileJob(
        target=target,
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
        copied=tuple(copied),
        hipified=hipified,
        kept=call.kept,
        **asdict(bounds),
        units=tuple(listed),
    ).document()


def _command(call: CompilerCall, language: Iterable[str], options: list[str]) -> tuple[str, ...]:
    work = [*call.work, "{work}"] if call.work else []
    return (*call.argv, *work, *options, *language, "-c", "{source}", "-o", "{output}")
