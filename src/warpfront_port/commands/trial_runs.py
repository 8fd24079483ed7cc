"""try: a program of a user's project in an unchanged image, and the modules it lacks there.

They are found one by one, at versions that keep the image's torch. Missing packages are installed
outside the image, into a temporary folder. The project is mounted read-only, and nothing in the
container reaches a network.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.errors import BlockedError, InputError, LockError, NothingSelectedError, WheelError
from warpfront.images.built import BuiltImage
from warpfront.images.engine.protocol import Bind, RunRequest, connect
from warpfront.images.preparing import (
    Prepared,
    Tools,
    find_bases,
    images_by_content,
    locked_inputs,
    prepare_cells,
    render_cells,
)
from warpfront.matrix.cell import ENVIRONMENT_PYTHON, Cell, DeviceAccess, RequirementList, Selection
from warpfront.matrix.selection import select, with_parents
from warpfront.matrix.vendors import VENDORS
from warpfront.pipeline.workspace import Workspace
from warpfront.step_results import Blocked, Failed
from warpfront.system.digests import clean_json
from warpfront.system.process import Command, run
from warpfront.system.progress import Watch
from warpfront.verify.containers import MEMORY_BYTES, built_image, run_told
from warpfront.wheels.core_metadata import Distribution
from warpfront.wheels.lock.pylock import difference, lock_inputs
from warpfront.wheels.lock.values import LockedWheel, LockInputs, WheelLock
from warpfront.wheels.resolve.candidates import (
    OlderRelease,
    refusal,
    release_with_module,
    requirers_without_wheels,
    way_out,
)
from warpfront.wheels.resolve.demands import Stack, needs_of, stack_of
from warpfront.wheels.resolve.resolver import uv_platform, wheel_of
from warpfront.wheels.resolve.resolving import resolve_by_uv
from warpfront.wheels.sources import Site
from warpfront.wheels.store.archives import write_stand_in
from warpfront.wheels.uv_program import uv_binary, wheels_for
from warpfront_port.commands.following_packages import fitting_text
from warpfront_port.commands.project_files import read_files
from warpfront_port.preflight.declared import DeclaredRequirement
from warpfront_port.preflight.metadata_index import MetadataIndex
from warpfront_port.trying.trial import Miss, MissAnswer, Trial, provider, read_misses

if TYPE_CHECKING:
    from warpfront.wheels.transport import Transport

ROUNDS = 24
"""The most modules that may be missing, one after the other or at once, before the trial ends."""

TIME_LIMIT_SECONDS = 600.0
_REPO, _LAYER = "/repo", "/try"
_PATH = "/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAIL_LINES = 25
_METADATA_PROGRAM = (
    "import importlib.metadata as m, json\n"
    "found = {d.metadata['Name']: (d.version, d.requires or []) for d in m.distributions()}\n"
    "print(json.dumps(found))"
)
_PLACES = ("src", ".", "python", "lib")
"""The usual folders of projects' modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """A request to try the program `argv` of the project at `repo`, for at most `seconds`.

    `provides` maps modules to requirements. With `install`, missing packages are added to a layer
    over the image and the program runs again.
    """

    repo: Path
    argv: tuple[str, ...]
    install: bool = False
    provides: Mapping[str, str] = field(default_factory=dict)
    seconds: float = TIME_LIMIT_SECONDS

    def __post_init__(self) -> None:
        if not self.argv:
            hint = "warpfront port try ../app --image torch -- python train.py"
            raise InputError("no program to try: it follows `--`", hint=hint)
        if not self.repo.is_dir():
            raise InputError(f"{self.repo}: no such folder", hint="PATH names the project")


def try_project(
    workspace: Workspace, selection: Selection, watch: Watch, asking: TrialRequest
) -> Trial | Blocked | Failed:
    """Run the program in the one selected image and return the trial."""
    matrix, material, folders = workspace.matrix, workspace.material, workspace.folders
    engine = connect()
    engine.reap()
    cell = only_cell(matrix.cells, selection)
    inputs = locked_inputs(matrix, material, folders, selection)
    tools = Tools(engine=engine, folders=folders)
    planned = ""  # the image that `plan` would reuse for this cell
    every = with_parents((cell,), matrix.cells)
    if all(base.id in inputs.locks for base in every):
        bases, images = find_bases(every, engine), images_by_content(matrix.repositories, engine)
        rendered = render_cells(every, inputs.locks, inputs.material)
        prepared = prepare_cells(every, rendered, inputs.locks, bases, images).get(cell.id)
        if isinstance(prepared, Prepared) and prepared.image is not None:
            planned = prepared.image.id
    return try_in(cell, inputs.locks, asking, tools, watch, image_id=planned)


def only_cell(cells: tuple[Cell, ...], selection: Selection) -> Cell:
    """Return the selected cell. Raise `NothingSelectedError` where options name several."""
    chosen = select(cells, selection)
    if len(chosen) > 1:
        names = ", ".join(cell.id for cell in chosen)
        message = f"a program is tried in one image, and these are {len(chosen)}: {names}"
        hint = "--vendor, --target or --only beside --image: so that one is left"
        raise NothingSelectedError(message, hint=hint)
    return chosen[0]


def try_in(
    cell: Cell,
    locks: Mapping[str, WheelLock],
    asking: TrialRequest,
    tools: Tools,
    watch: Watch,
    *,
    image_id: str = "",
) -> Trial | Blocked | Failed:
    """Run the program in the engine's image of one cell and return the trial.

    The image is `image_id` where `plan` would reuse one, else that of the last build.
    """
    built = built_image(tools.folders.store, cell, tools.engine)
    if isinstance(built, Blocked | Failed) and not image_id:
        return built
    if cell.id not in locks:
        hint = f"warpfront build --only {cell.id}"
        reason = "its lock no longer fits the matrix"
        return Blocked(cell_id=cell.id, step="verify", reason=reason, hint=hint)
    access = VENDORS[cell.vendor].device_access(tools.engine.host_devices())
    lines: tuple[DeclaredRequirement, ...] = ()
    with contextlib.suppress(InputError):  # a file that cannot be read
        lines = tuple(line for file in read_files(asking.repo, ()) for line in file.declared)
    with tempfile.TemporaryDirectory(prefix="warpfront-try-") as layer:
        trying = _Trying(
            cell=cell,
            lock=locks[cell.id],
            asking=asking,
            asked=lines,
            layer=Path(layer),
            image=image_id or (built.image_id if isinstance(built, BuiltImage) else ""),
            access=access or DeviceAccess(),
            tools=tools,
            watch=watch,
        )
        return trying.tried()


@dataclass(frozen=True, kw_only=True)
class _Trying:
    """A trial of one program in one image, with its answers so far."""

    cell: Cell
    lock: WheelLock
    asking: TrialRequest
    asked: tuple[DeclaredRequirement, ...]
    layer: Path
    image: str
    access: DeviceAccess
    tools: Tools
    watch: Watch
    answers: list[MissAnswer] = field(default_factory=list)
    layered: set[str] = field(default_factory=set)
    locks: dict[tuple[str, ...], WheelLock] = field(default_factory=dict)
    older: dict[str, LockedWheel] = field(default_factory=dict)

    def tried(self) -> Trial:
        """Run; look for what was missing; with `install`, install that and run again."""
        runs = 0
        while True:
            runs += 1
            with self._step(f"runs {' '.join(self.asking.argv)}"[:100]):
                engine = self.tools.engine
                result, output = run_told(engine, self._request(), self.watch, self.cell.id)
            text = str(clean_json(output.text))  # without a terminal's own characters
            misses = read_misses(text) if result.exit_code and not result.timed_out else ()
            names = {answer.miss.name for answer in self.answers}
            new = [miss for miss in misses if miss.name not in names][:ROUNDS]
            answers = [self._answered(miss) for miss in new]
            self.answers.extend(answers)
            install = self.asking.install
            goes_on = any(answer.folder or (answer.version and install) for answer in answers)
            if not goes_on or runs > ROUNDS:
                break
            if self.asking.install:
                self._install()
        # The command that runs it in the image, with the user's own folder and devices.
        path = ("--env", f"PYTHONPATH={':'.join(self._places)}") if self._places else ()
        by_hand = (
            *("docker", "run", "--rm", "--user", f"{os.getuid()}:{os.getgid()}"),
            # As in the trial: with Docker's 64 MB, worker processes of a DataLoader die.
            *("--shm-size", "1g", *path, *device_flags(self.access)),
            *("--volume", f"{self.asking.repo.resolve()}:{_REPO}", "--workdir", _REPO),
            self.cell.local_reference,
            *self.asking.argv,
        )
        return Trial(
            cell_id=self.cell.id,
            image=self.cell.image,
            torch=self._versions.get("torch", self.cell.torch),
            argv=self.asking.argv,
            runs=runs,
            exit_code=None if result.timed_out else result.exit_code,
            tail="\n".join(text.rstrip().splitlines()[-_TAIL_LINES:]),
            found=tuple(self.answers),
            installed=self.asking.install,
            by_hand=by_hand,
        )

    @property
    def _versions(self) -> Mapping[str, str]:
        """Return the versions of the image's distributions."""
        return {wheel.name: wheel.version for wheel in self.lock.wheels}

    @property
    def _places(self) -> tuple[str, ...]:
        """Return the folders of the project, inside, that have modules of its own."""
        folders = (answer.folder for answer in self.answers if answer.folder)
        return tuple(dict.fromkeys(f"{_REPO}/{folder}".removesuffix("/.") for folder in folders))

    @contextlib.contextmanager
    def _step(self, text: str) -> Iterator[None]:
        self.watch.step(self.cell.id, text)
        try:
            yield
        finally:
            self.watch.step(self.cell.id, "")

    def _request(self) -> RunRequest:
        return RunRequest(
            image=self.image,
            # One pipe: with two, the final error may arrive before earlier output.
            command=("sh", "-c", 'exec "$@" 2>&1', "sh", *self.asking.argv),
            environment={
                "HOME": "/tmp",  # noqa: S108 - in the image
                # Threads that spin while they wait slow down a machine with other work.
                "OMP_WAIT_POLICY": "PASSIVE",
                "PATH": f"{_LAYER}/bin:{_PATH}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": ":".join((_LAYER, *self._places)),
                # The final error has to be the last output, after all that was printed before.
                "PYTHONUNBUFFERED": "1",
            },
            binds=(
                Bind(source=self.asking.repo.resolve(), target=_REPO),
                Bind(source=self.layer, target=_LAYER),
            ),
            user=f"{os.getuid()}:{os.getgid()}",
            workdir=_REPO,
            devices=self.access,
            memory_bytes=MEMORY_BYTES,
            time_limit_seconds=self.asking.seconds,
        )

    def _answered(self, miss: Miss) -> MissAnswer:
        """Return the answer to one miss: a folder, a version to install, or a refusal."""
        for place in _PLACES if miss.top else ():
            folder = self.asking.repo / place
            if (folder / f"{miss.top}.py").is_file() or any((folder / miss.top).glob("*.py")):
                return MissAnswer(miss=miss, folder=place)
        version = self._versions.get(canonicalize_name(miss.top or miss.distribution), "")
        if version and miss.module == miss.top:
            refusal = f"the image holds {miss.asked} {version}, and this program does not see it"
            other = "has the program another Python, or another search path?"
            hint = f"it is there for {ENVIRONMENT_PYTHON}: {other}"
            return MissAnswer(miss=miss, refusal=refusal, hint=hint)
        answer = provider(miss, self.asked, self.asking.provides)
        if not answer.requirement and version:
            name = canonicalize_name(miss.top)
            answer = dataclasses.replace(answer, requirement=name, said_by="the image")
        if not answer.requirement:
            refusal = "it is not known here which distribution brings it"
            option = f"--provides {miss.asked}=DISTRIBUTION"
            hint = f"{option} says it; its name alone may be another's"
            return dataclasses.replace(answer, refusal=refusal, hint=hint)
        return self._older(answer) if answer.name in self._versions else self._newer(answer)

    def _newer(self, answer: MissAnswer) -> MissAnswer:
        """Return the version of a package that the image lacks, which keeps its torch."""
        name = answer.name
        try:
            lock = self._lock_of([*self.answers, answer])
        except (LockError, WheelError, BlockedError) as error:
            # A package without a wheel is built against the image's torch, or has nothing for its
            # device.
            message = " ".join(error.message.removeprefix(f"{self.cell.id}-try: ").split())
            hint = error.hint
            if requirers_without_wheels(message, ()):
                message, hint = refusal(name), way_out(name, self.cell.vendor)
            elif isinstance(error, LockError):
                stack = stack_of(lock_inputs(self.cell, None, None), self._versions)
                with MetadataIndex(self.tools.site(), lambda *_: None) as index:
                    text = fitting_text(index, name, stack, self.cell.python, self.cell.machine)
                hint = "; ".join(filter(None, (text, hint)))
            return dataclasses.replace(answer, refusal=message[:600], hint=hint)
        more = difference(lock, self.lock)
        version = next((wheel.version for wheel in more if wheel.name == name), "")
        if not version:
            why = f"a shim of the guard answers for {name}, and has no module"
            return dataclasses.replace(answer, refusal=why)
        before = {wheel.name for wheel in difference(self._lock_of(self.answers), self.lock)}
        sizes = [wheel.size_bytes for wheel in more if wheel.name not in before]
        brings, size = len(sizes) - 1, sum(sizes)
        return dataclasses.replace(answer, version=version, brings=brings, size_bytes=size)

    def _older(self, answer: MissAnswer) -> MissAnswer:
        """Return the newest release that has a module which the image's own version of it lacks.

        The image's other distributions have to accept that release.
        """
        miss, name = answer.miss, answer.name
        version = self._versions[name]
        refused = dataclasses.replace(
            answer, refusal=f"the image holds {name} {version}, which has no {miss.module}"
        )
        vendor = VENDORS[self.cell.vendor]
        stack = (*vendor.protected, *vendor.libraries)
        if not miss.module or any(fnmatch(name, pattern) for pattern in stack):
            hint = "port the import: what is of the torch stack stays as it is"
            return dataclasses.replace(refused, hint=hint)
        asking = Requirement(answer.requirement).specifier
        none = Stack(versions={}, answered={}, foreign={})
        python, machine = self.cell.python, self.cell.machine
        need = needs_of(self._inside, none, python=python, machine=machine).get(name)
        accepted = need.specifier & asking if need else asking
        site, newer = self.tools.site(), Version(version)
        with site.transport() as transport:
            older_release = release_with_module(name, miss.module, newer, accepted, transport)
            wheel = self._kept(older_release, transport) if older_release else None
        if older_release is None or wheel is None:
            hint = "no release of that which an index here offers has it"
            hint = f"{need.text(name)}; {hint}" if need else hint
            return dataclasses.replace(refused, hint=hint)
        self.older[name] = wheel
        below = re.sub(r"(\.0)+$", "", str(older_release.below))  # 82 for 82.0.0
        specifiers = SpecifierSet(f"<{below}") & accepted
        return dataclasses.replace(
            answer,
            requirement=f"{name}{','.join(sorted(map(str, specifiers), reverse=True))}",
            said_by=older_release.source,
            version=str(older_release.version),
            replaces=version,
            size_bytes=wheel.size_bytes,
        )

    def _kept(self, older: OlderRelease, transport: Transport) -> LockedWheel | None:
        """Return the release's wheel in the wheelhouse; None where it cannot be fetched."""
        house = self.tools.folders.wheelhouse
        try:
            wheel_path, sha256 = house.bring(older.link, transport, self.cell.id)
        except BlockedError:
            return None
        if older.link.sha256 not in {"", sha256}:
            raise WheelError(f"{older.link.filename}: {older.source} has another hash for it")
        return wheel_of(wheel_path, sha256)

    @cached_property
    def _inside(self) -> tuple[Distribution, ...]:
        """Return the distributions in the image with their metadata, which the image itself has."""
        request = dataclasses.replace(
            self._request(), command=(ENVIRONMENT_PYTHON, "-c", _METADATA_PROGRAM), binds=()
        )
        _, output = run_told(self.tools.engine, request, self.watch, self.cell.id)
        lines = output.text.strip().splitlines()
        try:
            document = clean_json(json.loads(lines[-1] if lines else ""))
            return tuple(
                Distribution(name=str(name), version=str(number), requires=tuple(map(str, demands)))
                for name, (number, demands) in dict(document).items()  # type: ignore[call-overload]
            )
        except (ValueError, TypeError) as error:
            raise WheelError("the image did not list its distributions") from error

    def _lock_of(self, miss_answers: list[MissAnswer]) -> WheelLock:
        """Return the lock of a child image with the requirements of these answers."""
        added = (each for each in miss_answers if not (each.refusal or each.replaces))
        texts = tuple(each.requirement for each in added if each.requirement)
        if not texts:
            return self.lock
        if texts not in self.locks:
            self.locks[texts] = self._resolved(texts)
        return self.locks[texts]

    def _resolved(self, texts: tuple[str, ...]) -> WheelLock:
        child = dataclasses.replace(
            self.cell,
            id=f"{self.cell.id}-try",
            parent=self.cell.id,
            requirements=(),
            requirements_file=None,
            listed=RequirementList(requirements=texts),
            compiler=None,
            relax={},
            builds=(),
            patches=(),
        )
        inputs = lock_inputs(child, child.listed, self.lock)
        with self._step(f"looks for {texts[-1]}"):
            try:
                return self._locked(inputs, self.tools.site())
            except BlockedError:
                # No index of the image's torch answers, but the image has its metadata: wheels
                # that contain only that stand for its distributions.
                requires = {canonicalize_name(p.name): p.requires for p in self._inside}
                with tempfile.TemporaryDirectory(prefix="warpfront-") as folder:
                    for wheel in self.lock.wheels:
                        requirements = requires.get(canonicalize_name(wheel.name))
                        if requirements is not None:
                            write_stand_in(wheel.kept_as, Path(folder), requires=requirements)
                    site = self.tools.site()
                    links = (folder, *site.find_links)
                    lock = self._locked(inputs, dataclasses.replace(site, find_links=links))
                parent_wheels = {wheel.name: wheel for wheel in self.lock.wheels}
                wheels = tuple(parent_wheels.get(wheel.name, wheel) for wheel in lock.wheels)
                return dataclasses.replace(lock, wheels=wheels)

    def _locked(self, inputs: LockInputs, site: Site) -> WheelLock:
        return resolve_by_uv(
            inputs,
            site,
            on_line=lambda _: None,
            wheelhouse=self.tools.folders.wheelhouse,
            parent=self.lock,
        )

    def _install(self) -> None:
        """Install the wheels that the image lacks into the layer, by their hashes."""
        more = difference(self._lock_of(self.answers), self.lock)
        new = [wheel for wheel in more if wheel.name not in self.layered]
        self.tools.folders.wheelhouse.fetch(new, self.tools.site(), on_progress=self.watch.advance)
        new += [wheel for name, wheel in self.older.items() if name not in self.layered]
        if not new:
            return
        argv = (
            *(str(uv_binary()), "pip", "install", "--target", str(self.layer)),
            *("--no-config", "--offline", "--no-index", "--no-deps", "--no-cache"),
            *wheels_for(self.cell.python, uv_platform(lock_inputs(self.cell, None, None))),
            *(str(self.tools.folders.wheelhouse.present(wheel)) for wheel in new),
        )
        installation = Command(argv=argv, unset=("VIRTUAL_ENV",))
        run(installation).check(hint="the wheels are those of the index, verified")
        # The programs of the layer run with the image's Python.
        for path in sorted(path for path in (self.layer / "bin").glob("*") if path.is_file()):
            first, _, rest = path.read_bytes().partition(b"\n")
            if first.startswith(b"#!") and b"python" in first:
                path.write_bytes(f"#!{ENVIRONMENT_PYTHON}".encode() + b"\n" + rest)
        self.layered.update(wheel.name for wheel in new)


def device_flags(access: DeviceAccess) -> Iterator[str]:
    """Yield the options of `docker run` that give a container its devices."""
    if access.gpus:
        yield from ("--gpus", "all")
    if access.runtime:
        yield from ("--runtime", access.runtime)
    yield from (word for device in (*access.cdi, *access.nodes) for word in ("--device", device))
    yield from (word for group in access.groups for word in ("--group-add", str(group)))
    for name, value in sorted(access.environment.items()):
        yield from ("--env", f"{name}={value}")
