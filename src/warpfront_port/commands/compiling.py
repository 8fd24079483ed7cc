"""compile: the sources of a tree, in a container with the vendor's compiler. No GPU, no network,
the tree mounted read-only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath
from time import monotonic

from packaging.version import Version

import warpfront_checks
from warpfront.errors import InputError, NothingSelectedError, StoreError
from warpfront.images.built import BuiltImage
from warpfront.images.engine.bases import bootstrapped_image, recipe_digest
from warpfront.images.engine.protocol import Bind, Engine, RunRequest
from warpfront.images.preparing import Tools
from warpfront.matrix.cell import Cell, CompilerBase, CompilerCall, Selection
from warpfront.matrix.reading import Matrix
from warpfront.matrix.selection import select
from warpfront.matrix.vendors import VENDORS, Vendor
from warpfront.report.junit import junit_xml
from warpfront.system.foreign import read_regular, regular_files, remove_tree, result_in
from warpfront.system.progress import Watch
from warpfront.system.store import Store, exclusive, write_json, write_text
from warpfront.system.strict_values import extended
from warpfront.system.texts import counted
from warpfront.system.trees import Tree, list_tree
from warpfront.system.trees import read_text as read_source
from warpfront.verify.containers import MEMORY_BYTES, Output, built_image, ending_of
from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.verify.verdict import read_verification
from warpfront.wheels.store.sdists import install_tools
from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.compile.job_document import SOURCE, CompileRequest, job_document
from warpfront_port.compile.outcomes import HIPIFIED, SESSION, Compilation, Message, judged
from warpfront_port.compile.units import HEADERS, READ, SETUP, SourceUnit, units_of
from warpfront_port.scan.findings import ScanFinding, Severity
from warpfront_port.scan.targets import read_target

_PACKAGE, _JOB, _RESULTS = "/warpfront/src/warpfront_checks", "/warpfront/job.json", "/results"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LONGEST_SECONDS = 2 * 3600.0
_START_SECONDS = 120.0
# Kernels too: nvcc includes CUDA's headers by itself, hipcc does not, and hipify adds HIP's.
_CUDA = re.compile(
    r"\b(?:cuda|CUDA|cu[A-Z]|cu(?:blas|dnn|fft|rand|solver|sparse)|cub\b|nccl|nvtx)"
    r"|\b__(?:global|device)__\b"
)
LEFT = "what hipify leaves"
_KEPT = "kept/"
_LEFT_LIMIT_BYTES = 256 * 2**20
_MOST_LEFT_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompilerPlace:
    """An image with a compiler: a `devel` cell's, or a bootstrapped one without torch."""

    id: str
    name: str
    image_id: str
    content_hash: str
    toolkit: str
    cell: Cell | None = None
    binds: tuple[Bind, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


def compile_tree(
    request: CompileRequest, matrix: Matrix, selection: Selection, tools: Tools, watch: Watch
) -> Compilation:
    """Compile the sources of the tree for the target, and return the result.

    The compiler is in the image of a `devel` cell that was built, else one of the matrix's
    compilers without torch. Raise `NothingSelectedError` where no cell and no compiler serves the
    target, and `InputError` for a tree with nothing to compile.
    """
    target, vendor = read_compile_target(request.target)
    if vendor.compiler_call(target) is None:
        raise NothingSelectedError(f"{vendor.name} has no compiler that could be called here")
    request = dataclasses.replace(request, target=target)
    place = compiler_place(matrix, selection, target, tools, watch)
    compilation = compile_at(place, request, tools.folders.store, tools.engine, watch)
    if compilation is None:
        raise InputError(
            f"{request.repo}: no kernel was found",
            hint="--sources names what else is to be compiled: 'csrc/*.cpp,setup.py'",
        )
    serving = (cell for cell in matrix.cells if target in cell.targets and cell.toolkit is not None)
    toolkits = {str(cell.toolkit) for cell in serving}
    if place.cell is not None or not toolkits or place.toolkit in toolkits:
        return compilation
    # The compiler without torch is of another toolkit than the images.
    doubt = f"this compiler is of {place.toolkit}; images of the matrix for {target} hold "
    doubt += ", ".join(sorted(toolkits))
    return dataclasses.replace(compilation, notes=(*compilation.notes, doubt))


def compile_at(
    place: CompilerPlace, request: CompileRequest, store: Store, engine: Engine, watch: Watch
) -> Compilation | None:
    """Compile the sources of the tree in an image; None where the tree has nothing to compile."""
    call = read_compile_target(request.target)[1].compiler_call(request.target)
    assert call is not None, "the caller asked"
    tree = list_tree(request.repo, exclude=request.exclude)
    texts = _texts(tree)
    units = units_of(texts, request.sources)
    if not units:
        return None
    compiling = _Compiling(
        store=store, request=request, call=call, units=units, tree=tree, texts=texts, place=place
    )
    return compiling.run(engine, watch)


def read_units(request: CompileRequest) -> tuple[SourceUnit, ...]:
    """Return the units that would be compiled. Only read the tree."""
    return units_of(_texts(list_tree(request.repo, exclude=request.exclude)), request.sources)


def read_compile_target(name: str) -> tuple[str, Vendor]:
    """Return the target and its vendor; `cpu` is the other name of this machine."""
    for vendor in VENDORS.values():
        if name == vendor.name == "cpu":
            name = platform.machine()
        if vendor.accepts_target(name):
            return name, vendor
    forms = ", ".join(vendor.target_form for vendor in VENDORS.values())
    raise NothingSelectedError(f"target {name!r} is no vendor's", hint=f"they look like {forms}")


def _texts(tree: Tree) -> dict[str, str]:
    """Return the readable texts of the files that compilers and `units_of` read, by path."""
    read = (
        (file.path, read_source(tree.root, file))
        for file in tree.files
        if PurePosixPath(file.path).suffix.lower() in READ or file.path.endswith(SETUP)
    )
    return {path: text for path, text in read if isinstance(text, str)}


def compiler_place(
    matrix: Matrix, selection: Selection, target: str, tools: Tools, watch: Watch
) -> CompilerPlace:
    """Return the image of the matrix that compiles for `target`: of a built cell, else of the
    compiler with the newest toolkit, made where it is not there.

    Raise `NothingSelectedError` where no cell and no compiler serves the target.
    """
    serving = [base for base in matrix.compilers if target in base.targets]
    bases = sorted(serving, key=lambda base: Version(base.toolkit.version if base.toolkit else "0"))
    for base in bases:
        if fnmatchcase(f"compiler-{base.name}", selection.only):
            return _of_base(base, tools, watch)
    chosen = select(matrix.cells, dataclasses.replace(selection, target=""))
    cells = _with_compiler(chosen, target)
    # A selection that names cells with a compiler means those: no other may replace them.
    named = bool(cells and (selection.only or selection.image))
    cells = cells or _with_compiler(matrix.cells, target)
    for cell in reversed(cells):
        image = built_image(tools.folders.store, cell, tools.engine)
        if isinstance(image, BuiltImage):
            return cell_place(cell, image)
    if named or not bases:
        message = f"no image with a compiler for {target} is built"
        hint = "matrix.yaml: a row with `devel`, or an entry of `compilers:`"
        if cells:
            message += f": {', '.join(cell.id for cell in cells)}"
            hint = f"`warpfront build --only {cells[-1].id}`, or a `compilers:` entry"
        raise NothingSelectedError(message, hint=hint)
    return _of_base(bases[-1], tools, watch)


def _with_compiler(cells: Iterable[Cell], target: str) -> list[Cell]:
    return [cell for cell in cells if cell.compiler is not None and target in cell.targets]


def cell_place(cell: Cell, image: BuiltImage) -> CompilerPlace:
    """Return the image of a `devel` cell."""
    toolkit = str(cell.toolkit or "")
    return extended(
        CompilerPlace, image, id=cell.id, name=image.reference, toolkit=toolkit, cell=cell
    )


def _of_base(base: CompilerBase, tools: Tools, watch: Watch) -> CompilerPlace:
    id_, cache = f"compiler-{base.name}", tools.folders.cache
    stored = bootstrapped_image(id_, base.bootstrap, tools.engine, cache=cache, on_line=watch.say)
    compiler, binds = base.compiler, []
    if compiler.requirements:
        folder = install_tools(
            cache / "compilers",
            compiler.requirements,
            python=base.python,
            machine=platform.machine(),
            site=tools.site(),
            hint=f"`compilers: {base.name}` needs its vendor's wheels",
        )
        packages = f"/opt/venv/lib/python{base.python}/site-packages"
        binds.append(Bind(source=folder, target=packages))
    path = f"{compiler.programs}:{_SYSTEM_PATH}" if compiler.programs else _SYSTEM_PATH
    return CompilerPlace(
        id=id_,
        name=f"compiler {base.name} (Debian {base.bootstrap.suite}, no torch)",
        image_id=stored.id,
        content_hash=recipe_digest(base.bootstrap),
        toolkit=str(base.toolkit or ""),
        binds=tuple(binds),
        environment={**compiler.environment, "PATH": path},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compiling:
    """A compilation of one tree for one target in one place."""

    store: Store
    request: CompileRequest
    call: CompilerCall
    units: tuple[SourceUnit, ...]
    tree: Tree
    texts: Mapping[str, str]
    place: CompilerPlace

    @property
    def folder(self) -> Path:
        return self.store.cell_folder(self.place.id) / f"{SESSION}-{self.request.target}"

    @property
    def hipified(self) -> tuple[str, ...]:
        """Return the files that hipify reads: units and headers that name anything of CUDA's."""
        if not self.request.hipify or not self.call.hipifies:
            return ()
        paths = {unit.path for unit in self.units if unit.kind != "extension"}
        paths |= {path for path in self.texts if PurePosixPath(path).suffix.lower() in HEADERS}
        return tuple(sorted(path for path in paths if _CUDA.search(self.texts[path])))

    @property
    def limit_seconds(self) -> float:
        """Return the container's time limit: every source and hipified file at its own limit."""
        rounds = -(-(len(self.units) + len(self.hipified)) // self.request.jobs)
        return min(LONGEST_SECONDS, _START_SECONDS + rounds * self.request.seconds)

    def run(self, engine: Engine, watch: Watch) -> Compilation:
        with exclusive(self.folder, watch.say):
            remove_tree(self.folder / "results")
            (self.folder / "results").mkdir(parents=True)
            paths = [file.path for file in self.tree.files]
            job = job_document(self.request, self.call, self.units, paths, self.hipified)
            write_json(self.folder / "job.json", job)
            started = monotonic()
            output = Output()
            watch.step(self.place.id, f"compiling {counted(len(self.units), 'source')}")
            result = engine.run(self._request(), on_line=output.add)
            watch.step(self.place.id, "")
            write_text(self.folder / "output.log", output.text)
            about = Verification(
                cell_id=self.place.id,
                target=self.request.target,
                where="image",
                image_id=self.place.image_id,
                content_hash=self.place.content_hash,
                seconds=round(monotonic() - started, 2),
            )
            files = {SESSION: result_in(self.folder / "results" / f"{SESSION}.json")}
            ended = ending_of(result, limit_seconds=self.limit_seconds)
            verification = read_verification(about, files, ended=ended)
            checks, messages = self._judged(verification.checks)
            scan_findings: tuple[ScanFinding, ...] = ()
            if self.hipified:
                # The scanner's findings in files that hipify read, beyond what it translates.
                request, target = self.request, read_target(self.request.target)
                scan = scan_tree(
                    ScanRequest(repo=request.repo, target=target, exclude=request.exclude)
                )
                loud, read = {Severity.ERROR, Severity.WARNING}, set(self.hipified)
                scan_findings = tuple(
                    f for f in scan.findings if f.path in read and f.severity in loud
                )
                checks = (*checks, _left_check(scan_findings))
            sessions = (SESSION, "static") if self.hipified else (SESSION,)
            verification = dataclasses.replace(verification, checks=checks, sessions=sessions)
            compilation = Compilation(
                verification=verification,
                messages=messages,
                left=scan_findings,
                place=self.place.name,
                notes=tuple(self._notes(verification)),
            )
            write_text(self.folder / "junit.xml", junit_xml((compilation.verification,)))
            self.store.save(self.place.id, self.folder.name, compilation.verification)
        return compilation

    def _request(self) -> RunRequest:
        return RunRequest(
            image=self.place.image_id,
            command=(
                *("python3", "-m", "warpfront_checks.compiling"),
                *("--job", _JOB, "--results", _RESULTS),
            ),
            binds=(
                Bind(source=Path(warpfront_checks.__file__).parent, target=_PACKAGE),
                Bind(source=self.folder.resolve() / "job.json", target=_JOB),
                Bind(source=self.tree.root.resolve(), target=SOURCE),
                Bind(source=self.folder.resolve() / "results", target=_RESULTS, writable=True),
                *self.place.binds,
            ),
            environment={
                **self.place.environment,
                "HOME": "/tmp",  # noqa: S108 - in the container
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": str(PurePosixPath(_PACKAGE).parent),
            },
            user=f"{os.getuid()}:{os.getgid()}",
            workdir="/tmp",  # noqa: S108 - in the container
            memory_bytes=MEMORY_BYTES,
            time_limit_seconds=self.limit_seconds,
        )

    def _judged(
        self, checks: tuple[CheckResult, ...]
    ) -> tuple[tuple[CheckResult, ...], tuple[Message, ...]]:
        """Return the checks with their compilers' messages. hipify may have renamed sources."""
        files = left_files(self.folder / "results")
        paths = {unit.path for unit in self.units}
        renames = [check.details.get("renamed") for check in checks if check.name == "hipify"]
        mappings = (mapping for mapping in renames if isinstance(mapping, Mapping))
        renamed = {str(new): source for mapping in mappings for source, new in mapping.items()}
        results = [
            judged(check, files=files, texts=self.texts, renamed=renamed)
            if check.name in paths
            else (check, ())
            for check in checks
        ]
        messages = tuple(message for _, messages in results for message in messages)
        return tuple(check for check, _ in results), messages

    def _notes(self, verification: Verification) -> Iterable[str]:
        """Yield the versions that the results depend on: of the compiler and of torch."""
        environment = verification.environment
        lines = str(environment.get("compiler", "")).splitlines()
        telling = [line.strip() for line in lines if re.search(r"version|release", line)]
        version = "; ".join(telling[:2] or lines[:1])
        yield f"compiler: {version or 'it did not say what it is'}"
        torch = environment.get("torch")
        if isinstance(torch, Mapping):
            yield f"torch: {torch.get('version')}"


def _left_check(scan_findings: tuple[ScanFinding, ...]) -> CheckResult:
    """Return the check of the findings after hipify.

    An error of the scanner in a file that compiles after hipify is wrong on the device.
    """
    errors = [finding for finding in scan_findings if finding.severity is Severity.ERROR]
    reason = counted(len(scan_findings), "warning")
    if errors:
        first = errors[0]
        place = f"{first.path}:{first.line}: {first.message}"
        reason = f"{counted(len(errors), 'error')}: {place}"
    keys = ("rule", "path", "line", "severity")
    return CheckResult(
        session="static",
        name=LEFT,
        outcome=Outcome.FAILED if errors else Outcome.PASSED,
        reason=reason,
        seconds=0.0,
        details={"findings": [{key: getattr(one, key) for key in keys} for one in scan_findings]},
    )


def left_files(folder: Path) -> dict[str, str]:
    """Return the readable files of a container's results, as texts by path below `folder`."""
    files, remaining = dict[str, str](), _LEFT_LIMIT_BYTES
    for path in islice(regular_files(folder), _MOST_LEFT_FILES):
        name = path.relative_to(folder).as_posix()
        if name.startswith((_KEPT, HIPIFIED)):
            with contextlib.suppress(StoreError):
                content = read_regular(path, remaining)
                files[name] = content.decode("utf-8", "replace")
                remaining -= len(content)
    return files
