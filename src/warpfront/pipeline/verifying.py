"""verify: start each built image as its users would, run the checks inside it, believe only
what they wrote.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import warpfront
import warpfront_checks
from warpfront.errors import EngineError, FailureKind, InputError, StoreError
from warpfront.images.built import BuiltImage
from warpfront.images.engine.protocol import Bind, RunRequest, RunResult, connect
from warpfront.images.labels import label_disagreements
from warpfront.images.preparing import CellInputs, Tools, locked_inputs, targets_of, unrunnable
from warpfront.images.render import claimed_policy
from warpfront.matrix.cell import Cell, DeviceAccess, HostDevices, Selection
from warpfront.matrix.vendors import VENDORS
from warpfront.pipeline.workspace import Workspace
from warpfront.report.junit import junit_xml
from warpfront.step_results import Blocked, Failed, attempt
from warpfront.system.extras import how_to_install, registered
from warpfront.system.foreign import remove_tree, result_in
from warpfront.system.progress import Watch
from warpfront.system.provenance import now
from warpfront.system.store import exclusive, storing, write_json, write_text
from warpfront.system.strict_values import extended
from warpfront.verify.containers import (
    MEMORY_BYTES,
    Attempt,
    attempt_key,
    built_image,
    continue_attempt,
    discard,
    ending_of,
    not_verified,
    run_told,
    written_by,
)
from warpfront.verify.emulation import EMULATED_SESSIONS, DispatchLog, as_leads, find_emulator
from warpfront.verify.image_claims import image_claims, tried
from warpfront.verify.results import EMULATOR, CheckResult, Outcome, Verification
from warpfront.verify.run_options import TIME_LIMIT_SECONDS, RunOptions
from warpfront.verify.verdict import (
    is_sealed,
    outcome_of,
    read_verification,
    sealed,
    together,
    verification_document,
)
from warpfront.wheels.store.sdists import install_toolbox
from warpfront_checks.architectures.roster import Library
from warpfront_checks.check_options import OPTIONS_KEY, SESSIONS, CheckOptions, stored_options
from warpfront_checks.claims import Claims
from warpfront_checks.hardware import Machine, read_devices
from warpfront_checks.hardware.device_errors import mishaps, read_health
from warpfront_checks.hardware.values import read_features
from warpfront_checks.selftest import VARIABLE, FaultsMissingError, faults_folder

Verified = Verification | Blocked | Failed
_INSIDE = "/warpfront"
_MOUNTED = (Path(warpfront.__path__[0]), Path(warpfront_checks.__path__[0]))
_RESULTS = "/results"
# A whole verification with one of these proved nothing on the hardware.
PROJECT_CHECKS = "warpfront.project_checks"
_NO_HARDWARE = frozenset({Outcome.UNAVAILABLE, Outcome.EMULATED, Outcome.UNDETERMINED})
# Hundreds of models, each in a process that begins by importing the library.
LIBRARY_LIMIT_SECONDS = 7200


def verify(
    workspace: Workspace,
    selection: Selection,
    watch: Watch,
    *,
    effort: CheckOptions | None = None,
    selftest: bool = False,
    options: RunOptions | None = None,
    library: Library | None = None,
) -> tuple[Verified, ...]:
    """Run the checks, inside each selected cell's image, on each of its targets (or
    the selected one).

    `selftest` also seeds faults into every check there, each of which has to be caught. With a
    `library`, its architectures and nothing else, which is no verification of the image.
    """
    folders, matrix, material = workspace.folders, workspace.matrix, workspace.material
    inputs = locked_inputs(matrix, material, folders, selection)
    plan = check_plan(selection.target, effort, options, selftest=selftest)
    if library:
        run = dataclasses.replace(plan.options, limit_seconds=LIBRARY_LIMIT_SECONDS)
        plan = dataclasses.replace(plan, sessions=("models",), effort=library, options=run)
    tools = Tools(engine=connect(), folders=folders)
    return verify_cells(inputs, plan, tools, watch)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """Checks of each image, on `target` if a cell serves it, else on every target."""

    target: str
    sessions: tuple[str, ...]
    effort: CheckOptions | Library
    options: RunOptions = field(default_factory=RunOptions)


def check_plan(
    target: str, effort: CheckOptions | None, options: RunOptions | None, *, selftest: bool
) -> CheckPlan:
    """Return all checks on a target. Raise `InputError` for a selftest that is impossible."""
    effort, options = effort or CheckOptions(), options or RunOptions()
    if selftest and options.emulate:
        raise InputError("--selftest does not apply to --emulate", hint="leave it out")
    sessions = (*SESSIONS, "selftest") if selftest else SESSIONS
    try:
        if selftest:
            faults_folder()
    except FaultsMissingError as error:
        message, _, hint = str(error).partition("\nhint: ")
        raise InputError(message, hint=hint) from None
    return CheckPlan(target=target, sessions=sessions, effort=effort, options=options)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiableImage:
    """A built image, its claims on one target, and the folder of what runs its checks."""

    cell: Cell
    built: BuiltImage
    toolbox: Path
    claims: Claims


def verify_cells(
    inputs: CellInputs, plan: CheckPlan, tools: Tools, watch: Watch
) -> tuple[Verified, ...]:
    """Return a result for each cell and target."""
    if emulate := plan.options.emulate:
        # What cannot be emulated is refused before the first container.
        for cell in inputs.cells:
            for target in targets_of(cell, plan.target):
                find_emulator(Path(emulate), cell.vendor, target)
    images = project_images(inputs, tools, watch, target=plan.target)
    return verify_images(images, plan, tools, watch)


def verify_images(
    images: Iterable[VerifiableImage | Blocked | Failed],
    plan: CheckPlan,
    tools: Tools,
    watch: Watch,
) -> tuple[Verified, ...]:
    """Return a result for each image, and errors as they are."""
    host = tools.engine.host_devices()
    results: list[Verified] = []
    for image in images:
        if isinstance(image, Blocked | Failed):
            results.append(image)
            continue
        stack = ("stack",) if "load" in plan.sessions and tried(image.cell) else ()
        sessions = EMULATED_SESSIONS if plan.options.emulate else plan.sessions
        fitting = dataclasses.replace(plan, sessions=(*sessions, *stack))
        verification = CellVerification(image=image, plan=fitting, tools=tools, watch=watch)
        results.append(verification.run(host))
    return tuple(results)


def project_images(
    inputs: CellInputs, tools: Tools, watch: Watch, *, target: str
) -> Iterator[VerifiableImage | Blocked | Failed]:
    """Yield each cell's image on `target` or on each of its own, or why that is impossible."""
    tools.engine.reap()
    blocked = unrunnable(inputs.cells, tools.engine, step="verify")
    for cell in inputs.cells:
        built = blocked.get(cell.id) or built_image(tools.folders.store, cell, tools.engine)
        if isinstance(built, BuiltImage) and cell.id not in inputs.locks:
            hint = f"warpfront build --only {cell.id}"
            built = not_verified(cell, "its lock no longer fits the matrix", hint)
        if isinstance(built, Blocked | Failed):
            yield built
            continue
        toolbox = toolbox_for(cell, tools, watch)
        if isinstance(toolbox, Blocked | Failed):
            yield toolbox
            continue
        policy = claimed_policy(cell, inputs.by_id, inputs.locks, inputs.material.compat)
        for served in targets_of(cell, target):
            claims = image_claims(cell, inputs.locks[cell.id], policy, target=served)
            yield VerifiableImage(cell=cell, built=built, toolbox=toolbox, claims=claims)


def toolbox_for(cell: Cell, tools: Tools, watch: Watch) -> Path | Blocked | Failed:
    """Return a folder of nox and its dependencies, or why it cannot be made."""
    cache, wheelhouse = tools.folders.cache, tools.folders.wheelhouse
    install = functools.partial(
        install_toolbox, cache, wheelhouse, site=tools.site, on_progress=watch.advance
    )
    return attempt(cell.id, "verify", install)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellVerification:
    """A verification of one image on the target of its claims."""

    image: VerifiableImage
    plan: CheckPlan
    tools: Tools
    watch: Watch

    @property
    def cell(self) -> Cell:
        return self.image.cell

    @property
    def target(self) -> str:
        return self.image.claims.target

    @property
    def name(self) -> str:
        """Return the name in the store; results for a library are never published."""
        kind = "models" if isinstance(self.plan.effort, Library) else "verify"
        return f"{kind}-{self.target}"

    @property
    def folder(self) -> Path:
        return self.tools.folders.store.cell_folder(self.cell.id) / self.name

    def say(self, text: str) -> None:
        self.watch.say(f"{self.cell.id} on {self.target}: {text}")

    def run(self, host: HostDevices) -> Verified:
        """Alone in its folder: two at once would read each other's results. Whatever goes wrong
        with this image, the next one has its turn, unless the engine is gone.
        """
        self.watch.step(self.cell.id, f"verifying on {self.target}")
        try:
            with exclusive(self.folder, self.watch.say):
                return self._run_emulated() if self.plan.options.emulate else self._run(host)
        except (StoreError, EngineError) as error:
            if isinstance(error, EngineError):
                self.tools.engine.reap()
            return not_verified(self.cell, error.message, error.hint, error.kind)
        finally:
            self.watch.step(self.cell.id, "")

    def _run(self, host: HostDevices) -> Verified:
        effort, vendor = self.plan.effort, self.cell.vendor
        whole = isinstance(effort, CheckOptions) and effort.quick and self._has_whole()
        if not whole:
            self.tools.folders.store.drop(self.cell.id, self.name)
        access = VENDORS[vendor].device_access(host)
        is_local = self.tools.engine.features().local
        before = read_health(Machine(), vendor) if is_local else None
        runs = [self._once(access, number) for number in range(self.plan.options.repeat)]
        verification = sealed(together(runs) if len(runs) > 1 else runs[0], ended=now())
        if outcome_of(verification) in {Outcome.FAILED, Outcome.ERROR} and (
            wrong := mishaps(before, read_health(Machine(), vendor) if is_local else None)
        ):
            discard(self.folder)
            hint = "nothing was learnt of the image; see the machine's kernel log"
            reason = f"the device failed meanwhile: {'; '.join(wrong)}"
            return not_verified(self.cell, reason, hint, FailureKind.INFRASTRUCTURE)
        write_text(self.folder / "junit.xml", junit_xml((verification,)))
        # A failure of quick checks counts; a pass proves less than one of all checks.
        if whole and outcome_of(verification) is Outcome.PASSED:
            note = "the whole verification of this very image stays in place of the quick one"
            self.say(f"passed; {note}")
        else:
            self.tools.folders.store.save(self.cell.id, self.name, verification)
        self.say(f"log in {self.folder / 'output.log'}")
        return verification

    def _run_emulated(self) -> Verification:
        """Run each session in the emulator, in a container of its own with its own limit. A result
        of hardware for this very image stays in the store.
        """
        emulator = find_emulator(Path(self.plan.options.emulate), self.cell.vendor, self.target)
        prepare_folder(self.folder, self.image.claims, self.plan.options.user_and_group)
        config, parts = self.folder / "emulator.json", []
        write_json(config, emulator.config)
        for session in self.plan.sessions:
            log = DispatchLog(canary=f"warpfront_canary_{secrets.token_hex(4)}")
            started, engine = monotonic(), self.tools.engine
            request = self._request(DeviceAccess(), (session,), self.plan.effort)
            request = emulator.around(request, config, log.canary)
            result, output = run_told(engine, request, self.watch, self.cell.id, also=log.add)
            write_text(self.folder / f"output-{session}.log", output.text)
            part = self._read_results(result, {}, monotonic() - started, (session,))
            # The check that the emulator computed in this session.
            proof = log.check(session, emulator, output.text.splitlines()[-3:])
            checks = (proof, *as_leads(part.checks))
            parts.append(dataclasses.replace(part, checks=checks))
        verification = dataclasses.replace(
            parts[0],
            sessions=self.plan.sessions,
            checks=tuple(check for part in parts for check in part.checks),
            seconds=round(sum(part.seconds for part in parts), 2),
            environment={
                **{key: value for part in parts for key, value in part.environment.items()},
                EMULATOR: emulator.document(),
                OPTIONS_KEY: self.plan.effort.document(),
            },
        )
        verification = sealed(self._with_labels(verification), ended=now())
        write_text(self.folder / "junit.xml", junit_xml((verification,)))
        if self._has_whole():
            self.say("the result of hardware stays in place")
        else:
            self.tools.folders.store.save(self.cell.id, self.name, verification)
        return verification

    def _has_whole(self) -> bool:
        """Return true if all checks were run on this very image, with any result."""
        stored = self.tools.folders.store.readable(self.cell.id, self.name, (Verification,))
        if stored is None or not is_sealed(stored) or outcome_of(stored) in _NO_HARDWARE:
            return False
        options, image = stored_options(stored.environment), (stored.image_id, stored.content_hash)
        whole = options is not None and options.get("quick") is False
        return whole and image == (self.image.built.image_id, self.image.built.content_hash)

    def _once(self, access: DeviceAccess | None, number: int) -> Verification:
        """Run once in the image. Files of the last run remain, findings of every run."""
        attempt, proven = self._attempt(access)
        effort = (attempt.effort if attempt else self.plan.effort).again(number)
        sessions = tuple(name for name in self.plan.sessions if name not in proven)
        user = self.plan.options.user_and_group
        prepare_folder(self.folder, self.image.claims, user, keep=proven)
        started = monotonic()
        request = self._request(access or DeviceAccess(), sessions, effort)
        result, output = run_told(self.tools.engine, request, self.watch, self.cell.id)
        write_text(self.folder / "output.log", output.text)
        verification = self._read_results(result, proven, monotonic() - started, self.plan.sessions)
        if attempt and result.timed_out:
            more = f"--limit-seconds gives it more than {self.plan.options.limit_seconds:g} s"
            self.say(f"the next verify continues with the sessions that passed; {more}")
        else:
            discard(self.folder)
        verification = self._with_project_checked(self._with_labels(verification))
        # The requested effort does not depend on the sessions that ran.
        facts = {**verification.environment, OPTIONS_KEY: effort.document(), "user": request.user}
        if attempt and proven:
            facts["proven before"] = {name: attempt.proven[name][0] for name in proven}
        verification = dataclasses.replace(verification, environment=facts)
        if self.plan.options.repeat > 1:
            document = verification_document(verification)
            write_json(self.folder / "again" / f"{number + 1}.json", document)
        return verification

    def _with_labels(self, verification: Verification) -> Verification:
        """Add a check of the image's labels and tag against the facts that the `load` session found
        inside. Only the engine has the labels, so the check runs outside.
        """
        if "load" not in self.plan.sessions:
            return verification
        cell, image = self.cell, self.tools.engine.image(self.image.built.image_id)
        labels = image.labels if image is not None else {}
        facts = verification.environment.get("facts")
        outcome, reason = Outcome.ERROR, "the load session left no facts to compare with"
        if isinstance(facts, Mapping):
            wrong = tuple(label_disagreements(cell, labels, facts))
            if image is None or cell.local_reference not in image.references:
                wrong = (*wrong, f"{cell.local_reference} is the name of another image")
            outcome = Outcome.FAILED if wrong else Outcome.PASSED
            reason = "; ".join(wrong) or f"{cell.tag} is what the image holds"
        check = CheckResult(
            session="load",
            name="labels and tag",
            outcome=outcome,
            reason=reason,
            details={"labels": dict(labels), "facts": facts},
        )
        return dataclasses.replace(verification, checks=(*verification.checks, check))

    def _with_project_checked(self, verification: Verification) -> Verification:
        """Add the sessions that other packages register for a cell with a project."""
        if self.cell.tree is None:
            return verification
        cell, built, folders = self.cell, self.image.built, self.tools.folders
        try:
            for check in registered(PROJECT_CHECKS):
                verification = check(
                    verification, cell, built, folders, engine=self.tools.engine, watch=self.watch
                )
        except ModuleNotFoundError as error:
            unread = CheckResult(
                session="static",
                name="project",
                outcome=Outcome.UNDETERMINED,
                reason=f"{error.name} is not installed: {how_to_install(error)}",
            )
            # Admission, JUnit and statements read the checks of listed sessions.
            sessions, checks = (*verification.sessions, "static"), (*verification.checks, unread)
            verification = dataclasses.replace(verification, sessions=sessions, checks=checks)
        return verification

    def _attempt(self, access: DeviceAccess | None) -> tuple[Attempt | None, dict[str, object]]:
        """Return the proven results of an interrupted verification of this very image, by session.

        Repetitions are never continued: each has to run.
        """
        effort, options = self.plan.effort, self.plan.options
        if options.fresh or options.repeat > 1:
            discard(self.folder)
        is_known = self.tools.engine.features().local  # a remote engine's drivers are not
        if not isinstance(effort, CheckOptions) or options.repeat > 1 or not is_known:
            return None, {}
        parts = {
            "image": [self.image.built.content_hash, self.image.built.image_id],
            "claims": self.image.claims.document(),
            "options": [effort.quick, effort.profile, len(effort.seeds)],
            "where": [self.tools.engine.name, *os.uname(), repr(access), *options.user_and_group],
            "devices": [read_features(Machine()), repr(read_devices(Machine(), self.cell.vendor))],
            "toolbox": self.image.toolbox.name,
        }
        faults = [faults_folder()] if "selftest" in self.plan.sessions else []
        key = attempt_key((*_MOUNTED, *faults), parts)
        attempt = continue_attempt(self.folder, key, effort, self.target)
        earlier = attempt.proven
        proven = {name: earlier[name][1] for name in self.plan.sessions if name in earlier}
        if proven:
            names = ", ".join(f"{name} ({earlier[name][0]})" for name in proven)
            before = "an interrupted verification of this image by these checks"
            self.say(f"continues {before}; proven before: {names}")
        return attempt, proven

    def _request(
        self, access: DeviceAccess, sessions: tuple[str, ...], effort: CheckOptions | Library
    ) -> RunRequest:
        words = (*sessions, "--", *effort.arguments())
        request = request_inside(self.image, self.folder, words, access)
        environment, binds = dict(request.environment), request.binds
        if "selftest" in sessions:
            binds = (*binds, Bind(source=faults_folder(), target=f"{_INSIDE}/faults"))
            environment[VARIABLE] = f"{_INSIDE}/faults"
        if self.image.claims.guard is not None:
            del environment["HOME"]  # a guarded image has one for every user, which is shown so
        user, group = self.plan.options.user_and_group
        return dataclasses.replace(
            request,
            binds=binds,
            environment=environment,
            time_limit_seconds=self.plan.options.limit_seconds,
            user=f"{user}:{group}",
        )

    def _read_results(
        self,
        result: RunResult,
        proven: Mapping[str, object],
        seconds: float,
        sessions: tuple[str, ...],
    ) -> Verification:
        results = self.folder / "results"
        about = extended(
            Verification,
            self.image.built,
            target=self.target,
            where="image",
            seconds=round(seconds, 2),
        )
        return read_verification(
            about,
            {
                name: proven[name] if name in proven else result_in(results / f"{name}.json")
                for name in sessions
            },
            nox_report=result_in(results / "nox.json"),
            ended=ending_of(result, limit_seconds=self.plan.options.limit_seconds),
            proven_before=frozenset(proven),
        )


def prepare_folder(
    folder: Path,
    claims: Claims,
    user: tuple[int, int] | None = None,
    *,
    keep: Iterable[str] = (),
) -> None:
    """Write the claims for a container, and a folder for its results, which is `user`'s. It is
    empty but for the files of the sessions `keep`.
    """
    results = folder / "results"
    kept = {path for session in keep for path in written_by(session, results)}
    if not kept:
        remove_tree(results)
    with storing(results):
        results.mkdir(parents=True, exist_ok=True)
        for path in set(results.iterdir()) - kept:
            remove_tree(path)
        if user not in {None, (os.getuid(), os.getgid())}:
            os.chown(results, *user)
    write_json(folder / "claims.json", claims.document())


def request_inside(
    image: VerifiableImage, folder: Path, words: tuple[str, ...], access: DeviceAccess
) -> RunRequest:
    """Return a request to run our sessions in an image as its users would start it. `words` are
    arguments of `enter.py`; `folder` has claims.json, and results/ to write to.
    """
    return RunRequest(
        image=image.built.image_id,
        command=("python3", f"{_INSIDE}/src/warpfront_checks/enter.py", *words),
        binds=(
            *(Bind(source=path, target=f"{_INSIDE}/src/{path.name}") for path in _MOUNTED),
            Bind(source=image.toolbox, target=f"{_INSIDE}/toolbox"),
            Bind(source=folder / "claims.json", target=f"{_INSIDE}/claims.json"),
            Bind(source=folder / "results", target=_RESULTS, writable=True),
        ),
        environment={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - in the image
        user=f"{os.getuid()}:{os.getgid()}",
        devices=access,
        memory_bytes=MEMORY_BYTES,
        time_limit_seconds=TIME_LIMIT_SECONDS,
    )
