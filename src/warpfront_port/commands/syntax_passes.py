"""The syntax passes of a scan, on this machine or in an image with a compiler. Edge."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import sysconfig
import tempfile
from dataclasses import replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from warpfront.errors import UnavailableError, WarpfrontError
from warpfront.images.engine.protocol import Bind, RunRequest, connect
from warpfront.images.preparing import Tools
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import Workspace
from warpfront.system.foreign import remove_tree
from warpfront.system.process import Command, cache_folder, environment, stream
from warpfront.system.progress import Watch
from warpfront.system.provenance import now
from warpfront.system.store import read_text, write_json
from warpfront.system.texts import counted
from warpfront.wheels.sources import read_site
from warpfront_port.commands.compiling import CompilerPlace, compiler_place
from warpfront_port.commands.scanning import NO_TOOLCHAIN, ScanRequest
from warpfront_port.compile import syntax_job
from warpfront_port.compile.syntax_pass import (
    claims_of,
    native_units,
    read_results,
    that_may_decide,
    with_syntax,
)
from warpfront_port.compile.toolchain import fetched_toolchain
from warpfront_port.compile.units import definitions_of
from warpfront_port.finding_forms import Scan
from warpfront_port.scan.hipify_names import hipify_names

MODULES = Path(str(resources.files("warpfront_port").joinpath("data", "cmake")))
_SECONDS = 180.0
_KEPT_SECONDS = 30 * 24 * 3600
_JOB, _RESULTS, _CACHE, _SOURCE, _TORCH, _PYTHON = (
    "/warpfront/job", "/results", "/cache", "/src", "/torch-include", "/python-include",
)  # fmt: skip


def with_compiler(
    scan: Scan, request: ScanRequest, workspace: Workspace | None, watch: Watch
) -> Scan:
    """Return the scan with a compiler's answers on its units; as it is where none is at hand.

    `auto` takes this machine's where its HIP is not older than the target's release, else the
    fetched one. `matrix` is an image of `compilers:`, which is built where it is missing. Raise
    `WarpfrontError` where a place was named and has no compiler for the target.
    """
    units, target = that_may_decide(scan, scan.project.units), request.target.name
    has_units = units or scan.project.builds_hip
    if not has_units or request.compiler == "none" or not target.startswith("gfx"):
        return scan
    try:
        document = _document(scan, request, workspace, watch)
        if not document.get("compiler"):
            reason = f"{NO_TOOLCHAIN} for {target} ({request.compiler})"
            raise UnavailableError(reason, hint="--compiler fetched brings one, none goes without")
    except WarpfrontError as error:
        if request.compiler != "auto":
            raise
        reason = error.message.partition("\n")[0]
        return replace(scan, uncompiled=dict.fromkeys(scan.uncompiled, reason))
    return with_syntax(scan, read_results(document, str(document["root"])))


def _document(
    scan: Scan, request: ScanRequest, workspace: Workspace | None, watch: Watch
) -> dict[str, object]:
    """Return the results of the passes, and the `root` that their paths are below."""
    # No other clang++ could know HIP.
    has_hip = shutil.which("hipcc") or shutil.which("amdclang++") or Path("/opt/rocm").is_dir()
    where, release = request.compiler, request.target.release
    if where == "host" or (where == "auto" and has_hip):
        document = _here(scan, request, "", watch)
        # One whose HIP is not older than the target's release of ROCm: `rocm7`.
        major = re.search(r"HIP (\d+)", str(document["compiler"]))
        if where == "host" or (major and int(major[1]) >= int(release.removeprefix("rocm") or 0)):
            return document
    if where != "matrix":
        try:
            toolchain = fetched_toolchain(cache_folder(), read_site(), watch)
        except WarpfrontError as error:
            reason = error.message.partition("\n")[0]
            words = f"{NO_TOOLCHAIN}, and none can be fetched: {reason}"
            raise UnavailableError(words, hint=error.hint) from error
        return _here(scan, request, str(toolchain), watch)
    if workspace is None:
        raise UnavailableError("no matrix.yaml here", hint="--compiler fetched needs none")
    tools = Tools(engine=connect(), folders=workspace.folders)
    place = compiler_place(workspace.matrix, Selection(), request.target.name, tools, watch)
    return _in_image(place, scan, request, workspace.folders.cache, watch)


def _stored_passes(cache: Path) -> Path:
    """Return the folder of stored passes, without those of more than a month ago."""
    folder = cache / "syntax"
    folder.mkdir(parents=True, exist_ok=True)
    oldest = datetime.fromisoformat(now()).timestamp() - _KEPT_SECONDS
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another scan was first
            if path.stat().st_mtime < oldest:
                remove_tree(path)
    return folder


def _here(scan: Scan, request: ScanRequest, toolchain: str, watch: Watch) -> dict[str, object]:
    """Run the passes on this machine, by its own toolchain or by the fetched one in a folder."""
    root, cache = str(request.repo.resolve()), str(_stored_passes(cache_folder()))
    with tempfile.TemporaryDirectory(prefix="warpfront-scan-") as folder:
        job, results = Path(folder) / "job.json", Path(folder) / "results.json"
        document = _job(scan, request, root, cache)
        document |= {"toolchain": toolchain, "is_confined": True}
        if toolchain:
            document["torch"] = f"{toolchain}/torch/include"
            document["python"] = str(next(Path(toolchain).glob("usr/include/python3*")))
        write_json(job, document)
        argv = (sys.executable, str(syntax_job.__file__), str(job), str(results))
        path = f"{toolchain}/bin:{environment().get('PATH', '')}".lstrip(":")
        watch.step("compile", f"{counted(len(document['units']), 'source')} on this machine")
        try:
            command = Command(argv=argv, environment={"PATH": path, "TMPDIR": folder})
            stream(command, lambda line: watch.step("compile", line)).check()
        finally:
            watch.step("compile", "")
        return {**json.loads(results.read_text("utf-8")), "root": root}


def _job(scan: Scan, request: ScanRequest, root: str, cache: str) -> dict[str, Any]:
    local_root = str(request.repo.resolve())
    product = scan.project.product
    of_python = product.installs and any(map(product.has, scan.project.builds))
    return {
        "flags": {
            unit: [word.replace(local_root, root) for word in words]
            for unit, words in product.flags.items()
        },
        # Where Python builds, a CMakeLists.txt is another build, of other sources.
        "modules": "" if product.basis or of_python else str(MODULES),
        "target": request.target.name,
        "root": root,
        "units": that_may_decide(scan, scan.project.units),
        "native": native_units(scan),
        "hosts": that_may_decide(scan, scan.project.hosts),
        "builds_hip": scan.project.builds_hip,
        "claims": claims_of(scan),
        "definitions": [
            word
            for build in filter(product.has, scan.project.builds)
            for word in definitions_of(build, read_text(request.repo / build) or "")
        ],
        "names": dict(hipify_names().twins),
        "headers": dict(hipify_names().headers),
        "torch": syntax_job.torch_headers(),
        "python": sysconfig.get_paths()["include"],
        "jobs": os.cpu_count() or 1,
        "seconds": _SECONDS,
        "cache": cache,
    }


def _in_image(
    place: CompilerPlace, scan: Scan, request: ScanRequest, cached: Path, watch: Watch
) -> dict[str, object]:
    """Run the passes in an image, without network, the tree read-only."""
    cache = _stored_passes(cached)
    with tempfile.TemporaryDirectory(prefix="warpfront-scan-") as name:
        folder = Path(name).resolve()
        (folder / "job").mkdir()
        (folder / "results").mkdir()
        job = _job(scan, request, _SOURCE, _CACHE)
        torch, python = job["torch"], job["python"]
        job |= {"torch": _TORCH if torch else "", "python": _PYTHON}
        job["modules"] = job["modules"] and f"{_JOB}/cmake"
        shutil.copytree(MODULES, folder / "job" / "cmake")
        write_json(folder / "job" / "job.json", job)
        shutil.copy(str(syntax_job.__file__), folder / "job" / "syntax_job.py")
        binds = [
            Bind(source=request.repo.resolve(), target=_SOURCE),
            Bind(source=folder / "job", target=_JOB),
            Bind(source=folder / "results", target=_RESULTS, writable=True),
            Bind(source=cache.resolve(), target=_CACHE, writable=True),
            *([Bind(source=Path(torch), target=_TORCH)] if torch else []),
            *([Bind(source=Path(python), target=_PYTHON)] if Path(python).is_dir() else []),
            *place.binds,
        ]
        argv = (f"{_JOB}/syntax_job.py", f"{_JOB}/job.json", f"{_RESULTS}/results.json")
        watch.step("compile", f"{counted(len(job['units']), 'source')} in {place.name}")
        connect().run(
            RunRequest(
                image=place.image_id,
                command=("python3", *argv),
                binds=tuple(binds),
                environment={**place.environment, "HOME": "/tmp"},  # noqa: S108 - in the container
                user=f"{os.getuid()}:{os.getgid()}",
                workdir="/tmp",  # noqa: S108 - in the container
                time_limit_seconds=10 * (1 + len(job["units"])) * _SECONDS,
            ),
            on_line=lambda line: watch.step("compile", line),
        )
        watch.step("compile", "")
        results = folder / "results" / "results.json"
        return {**json.loads(results.read_text("utf-8")), "root": _SOURCE}
