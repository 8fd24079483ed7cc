"""The session: what the compiler is, whether it knows the target, then every source."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from warpfront_checks.compiling.job import CompileJob, JobUnit, filled
from warpfront_checks.compiling.programs import Ended, ran
from warpfront_checks.results import CheckFinding, Recorder, errored, judged, passed, unavailable

COMPILER = "compiler"
HIPIFY = "hipify"
KEPT_LIMIT_BYTES = 4 << 20
# The standard that torch builds extensions with, which its headers need.
_TORCH_FACTS = """
import inspect, json, re, sysconfig, torch
from torch.utils import cpp_extension
standard = max(map(int, re.findall(r"std=c\\+\\+(\\d+)", inspect.getsource(cpp_extension))))
paths = cpp_extension.include_paths("cuda" if torch.version.cuda or torch.version.hip else "cpu")
print("facts=" + json.dumps({"version": torch.__version__, "hip": torch.version.hip,
    "cuda": torch.version.cuda, "standard": f"-std=c++{standard}",
    "include": [*paths, sysconfig.get_paths()["include"]]}))
"""
_IMPORT = """
import sys, torch, importlib.machinery, importlib.util, pathlib
files = sorted(pathlib.Path(sys.argv[1]).rglob("*.so"))
assert files, "the build left no module"
for file in files:
    name = file.name.partition(".")[0]
    loader = importlib.machinery.ExtensionFileLoader(name, str(file))
    loader.exec_module(importlib.util.module_from_spec(
        importlib.util.spec_from_file_location(name, str(file), loader=loader)))
    print("imported", name)
"""


@dataclass(kw_only=True)
class CompileJobRun:
    """A run of one job. `torch` are the options of this Python's torch, None without one; `known`
    is why its compiler can compile nothing; `renamed` are files that hipify gave another name.
    """

    job: CompileJob
    results: Path
    torch: tuple[str, ...] | None = None
    known: str = ""
    renamed: dict[str, str] = field(default_factory=dict)

    def record(self, recorder: Recorder) -> None:
        """Sources are compiled some at a time, and recorded in their order."""
        units = self.job.units
        hipify = [HIPIFY] if self.job.hipified else []
        recorder.plan([COMPILER, *hipify, *(unit.path for unit in units)])
        self.job.scratch.mkdir(parents=True, exist_ok=True)
        needs_torch = self.job.hipified or any(unit.torch for unit in self.job.units)
        argv = (sys.executable, "-c", _TORCH_FACTS)
        completed = self._ran(argv, "torch") if needs_torch else None
        lines = completed.output.splitlines() if completed and completed.returncode == 0 else []
        for line in [line for line in lines if line.startswith("facts=")][:1]:
            recorder.environment["torch"] = facts = json.loads(line.removeprefix("facts="))
            options = [word for folder in facts.pop("include") for word in ("-isystem", folder)]
            self.torch = (facts["standard"], *self.job.torch_defines, *options)
        recorder.run({COMPILER: partial(self._find_compiler, recorder.environment)})
        if self.known:
            rest = [*hipify, *(unit.path for unit in units)]
            recorder.run(dict.fromkeys(rest, partial(unavailable, self.known)))
            return
        recorder.run(dict.fromkeys(hipify, self._find_hipified))
        with ThreadPoolExecutor(self.job.jobs) as pool:
            futures = [pool.submit(self._find_compiled, i, unit) for i, unit in enumerate(units)]
            pairs = zip(units, futures, strict=True)
            recorder.run({unit.path: future.result for unit, future in pairs})

    def _find_compiler(self, environment: dict[str, object]) -> CheckFinding:
        """Return the compiler's version, and whether it compiles a line for the target at all."""
        version = self._ran(self.job.version, "version")
        environment["compiler"] = version.output.strip()
        if version.missing:
            self.known = f"no {self.job.version[0]} in this image"
            return unavailable(self.known)
        source = self.job.scratch / "probe" / self.job.probe.name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(self.job.probe.text, encoding="ascii")
        completed = self._ran(self.job.probe.argv, "probe", source)
        details = {"version": version.output.strip(), "output": completed.output}
        if completed.returncode == 0:
            return passed("", **details)
        name = self.job.version[0]
        self.known = f"this {name} cannot compile for {self.job.target}"
        return unavailable(f"{self.known}: {_first_line(completed)}", **details)

    def _find_hipified(self) -> CheckFinding:
        """Run hipify over the copy, by torch's tool where it is: that knows torch's own names too.
        Its output is also in `results/hipified`.
        """
        copy_tree(self.job, self.job.copied)
        hipified = _with_perl(self.job) if self.torch is None else _with_torch(self.job)
        self.renamed = hipified.renamed
        for name in self.job.hipified:
            target = self.results / "hipified" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.job.copy / self.renamed.get(name, name), target)
        count = len(self.job.hipified)
        details = {**vars(hipified), "files": count}
        if hipified.said:
            name, why = min(hipified.said.items())
            reason = f"{len(hipified.said)} of {count} files as they were: {name}: {why}"
            return errored(reason, **details)
        return passed(f"{hipified.tool} over {count} files", **details)

    def _find_compiled(self, index: int, unit: JobUnit) -> CheckFinding:
        if unit.torch and self.torch is None:
            return unavailable("it needs torch's headers, and this image has no torch")
        if unit.kind == "extension":
            return self._find_extension(index, unit)
        if not unit.argv:
            return unavailable(f"{self.job.version[0]} does not compile {unit.kind}s")
        name = f"unit-{index}"
        source = self.job.root / self.renamed.get(unit.path, unit.path)
        completed = self._ran(unit.argv, name, source)
        finding = self._judged(completed, name)
        shutil.rmtree(self.job.scratch / name, ignore_errors=True)
        return finding

    def _find_extension(self, index: int, unit: JobUnit) -> CheckFinding:
        """`setup.py build_ext` against this Python's torch, then every module imported."""
        name = f"unit-{index}"
        tree = self.job.scratch / name / "tree"
        try:
            own_job = dataclasses.replace(self.job, source=self.job.root, copy=tree)
            copy_tree(own_job, self.job.copied)
        except CopyError as error:
            return errored(str(error))
        built = self.job.scratch / name / "built"
        folders = ("--build-lib", str(built), "--build-temp", str(built.with_name("temp")))
        argv = (sys.executable, "setup.py", "build_ext", *folders)
        environment = {**self.job.environment, "MAX_JOBS": str(self.job.jobs)}
        folder = (tree / unit.path).parent
        completed = self._ran(argv, name, cwd=folder, environment=environment)
        if completed.returncode != 0:
            return self._judged(completed, name)
        imported = self._ran((sys.executable, "-c", _IMPORT, str(built)), name)
        seconds = completed.seconds + imported.seconds
        finding = self._judged(dataclasses.replace(imported, seconds=seconds), name)
        shutil.rmtree(self.job.scratch / name, ignore_errors=True)
        return finding

    def _judged(self, completed: Ended, name: str) -> CheckFinding:
        files = []
        # Intermediate files that say where an error is are copied to the results.
        for pattern in self.job.kept if completed.returncode else ():
            for file in sorted((self.job.scratch / name).glob(pattern)):
                if file.is_file() and file.stat().st_size <= KEPT_LIMIT_BYTES:
                    target = self.results / "kept" / name / file.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(file, target)
                    files.append(f"kept/{name}/{file.name}")
        details = {
            "argv": list(completed.argv),
            "output": completed.output,
            "compile_seconds": round(completed.seconds, 3),
            "returncode": completed.returncode,
            "kept": files,
        }
        if completed.missing:
            return unavailable(f"no {completed.argv[0]} in this image")
        if completed.returncode is None:
            return errored(f"stopped after {self.job.seconds:g} s", **details)
        if completed.out_of_memory:
            reason = f"the compiler ran out of its {self.job.memory_bytes / 2**30:g} GiB"
            return errored(reason, **details)
        return judged([_first_line(completed)] if completed.returncode else [], **details)

    def _ran(
        self, argv: tuple[str, ...], name: str, source: Path | None = None, **options: Any
    ) -> Ended:
        """Run in a folder of its own. torch maps more address space than it uses, so a program
        that loads it is bounded by the container alone.
        """
        folder = self.job.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        places = {
            "{source}": (str(source),),
            "{output}": (str(folder / "out.o"),),
            "{work}": (str(folder),),
            "{torch}": self.torch or (),
        }
        memory = self.job.memory_bytes if argv[0] != sys.executable else 1 << 46
        limits: dict[str, Any] = {"seconds": self.job.seconds, "memory_bytes": memory}
        return ran(filled(argv, places), **{**limits, "cwd": folder, **options})


def _first_line(completed: Ended) -> str:
    lines = [line.strip() for line in completed.output.splitlines() if line.strip()]
    return lines[0][:500] if lines else f"{completed.argv[0]} exited with {completed.returncode}"


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
