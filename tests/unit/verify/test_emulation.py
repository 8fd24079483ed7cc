"""`verify --emulate` around a stand-in for AMD's emulator (tests/stand_in_rocjitsu.py): sessions
run below it and only there, and without a dispatched kernel nothing counts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest
from builders import (
    A_PROJECT,
    A_RESOLVED_BASE,
    a_built_image,
    a_cell,
    a_channel,
    a_lock,
    a_wheel,
)
from fakes import FakeEngine
from stand_in_rocjitsu import device, stand_in_emulator, stand_in_rocm_torch

import warpfront_checks
from warpfront.cli.sessions import claims_for_target
from warpfront.errors import InputError, NotVerifiedError
from warpfront.images.built import BuiltImage
from warpfront.images.engine.protocol import RunRequest
from warpfront.images.labels import image_labels
from warpfront.images.preparing import CellInputs, Tools
from warpfront.matrix.cell import Cell, Pin, Toolkit
from warpfront.matrix.language import Allowance, Smoke
from warpfront.pipeline.verifying import (
    CellVerification,
    CheckPlan,
    VerifiableImage,
    verify_cells,
    verify_images,
)
from warpfront.pipeline.workspace import open_workspace
from warpfront.release.admission import Evidence, admission
from warpfront.release.evidence import verification_payload
from warpfront.release.publication import RegistryImage
from warpfront.release.statements.predicates import Proof, on_target
from warpfront.release.why import Why, why_text
from warpfront.report.page import state_of
from warpfront.report.rows import CellFacts, report_rows
from warpfront.system.progress import Line
from warpfront.system.store import Store
from warpfront.system.tree_files import Provenance
from warpfront.verify.emulation import EMULATED_SESSIONS, DispatchLog, as_leads, find_emulator
from warpfront.verify.results import CheckResult, Outcome, Verification
from warpfront.verify.run_options import RunOptions
from warpfront.verify.verdict import failure_of, outcome_of, sealed
from warpfront.wheels.project_folders import Folders
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import SESSIONS, CheckOptions

pytestmark = pytest.mark.process
CHECKS = Path(warpfront_checks.__file__).parents[1]
FACTS: dict[str, object] = {
    "torch": "2.12.1+rocm7.2",
    "toolkit": "rocm7.2",
    "python": "3.13",
    "machine": "x86_64",
    "archs": ["gfx90a", "gfx942"],
    "relaxed": [],
}
# What a session leaves: real `device` findings of this process, and a kernel by HIP.
SESSION = """
import json, os, sys
from pathlib import Path
from types import SimpleNamespace as N
sys.path.append(os.environ["STAND_IN_SOURCE"])
import torch as hip
from warpfront_checks.results import Recorder, CheckFinding
session, results = sys.argv[1], Path(os.environ["STAND_IN_RESULTS"])
fault = os.environ.get("STAND_IN_FAULT", "")
recorder = Recorder(session=session, target="gfx942", folder=results)
recorder.plan(["one"] if session == "load" else ["device", "one"])
if session == "load":
    recorder.environment["facts"] = json.loads(os.environ["STAND_IN_FACTS"])
else:
    from warpfront_checks.claimed_device import find_device
    from warpfront_checks.claims import claims_from
    from warpfront_checks.hardware import Machine, read_hardware
    one = N(name="AMD Instinct MI300X", gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=0,
            total_memory=206141652992, multi_processor_count=304)
    cuda = N(is_available=lambda: True, init=lambda: None, get_arch_list=list,
             device_count=lambda: 1, get_device_properties=lambda index: one)
    torch = N(__version__="2.14.1", cuda=cuda, _C=N(), version=N(cuda=None, hip="7.14"))
    claims = claims_from(json.loads(os.environ["STAND_IN_CLAIMS"]))
    find_device(claims, recorder, torch, read_hardware(Machine()))
    if fault != "idle":
        hip.hip.hipLaunched(b"Cijk_gemm")
outcome = "failed" if fault == "finding" else "passed"
recorder.run({"one": lambda: CheckFinding(outcome=outcome, reason="inf for 3")})
passed = recorder.finish()
word = "success" if passed else "failed"
(results / "nox.json").write_text(json.dumps({"sessions": [{"name": session, "result": word}]}))
"""


@dataclasses.dataclass
class World:
    """A cell for gfx942, its image, an emulator, and an engine that runs commands as processes."""

    cell: Cell
    built: BuiltImage
    emulator: Path
    folder: Path
    engine: FakeEngine
    fault: str = ""
    facts: dict[str, object] = dataclasses.field(default_factory=lambda: {**FACTS})

    def verify(self, session: str) -> Verification:
        found = CellVerification(
            image=self.verifiable(),
            plan=CheckPlan(
                target="gfx942",
                sessions=(session,),
                effort=CheckOptions(),
                options=RunOptions(emulate=str(self.emulator)),
            ),
            tools=Tools(engine=self.engine, folders=folders_in(self.folder)),
            watch=Silent(),
        ).run(self.engine.host_devices())
        assert isinstance(found, Verification)
        return found

    def verifiable(self) -> VerifiableImage:
        return VerifiableImage(
            cell=self.cell,
            built=self.built,
            toolbox=self.folder,
            claims=claims_for_target("gfx942"),
        )

    def in_a_process(self, request: RunRequest, on_line: Line) -> int:
        """Each bind is this machine's own path, and python3 of the image is this Python."""
        places = {bind.target: str(bind.source) for bind in request.binds}
        places |= {"/warpfront/src/warpfront_checks/enter.py": str(self.folder / "session.py")}
        argv = [mapped(word, places) for word in request.command]
        environment = {
            **os.environ,
            **request.environment,
            "ROCJITSU_RUNTIME_DIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(self.folder), *filter(None, sys.path)]),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "STAND_IN_RESULTS": places["/results"],
            "STAND_IN_SOURCE": str(CHECKS),
            "STAND_IN_FAULT": self.fault,
            "STAND_IN_FACTS": json.dumps(self.facts),
            "STAND_IN_CLAIMS": json.dumps(claims_for_target("gfx942").document()),
        }
        ended = subprocess.run(
            argv,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        for line in ended.stdout.splitlines():
            on_line(line)
        return ended.returncode


def folders_in(folder: Path) -> Folders:
    return Folders(root=folder, cache=folder, store=Store(folder / "build"))


class Silent:
    def say(self, text: str) -> None: ...
    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...
    def step(self, cell_id: str, text: str) -> None: ...
    def line(self, cell_id: str, text: str) -> None: ...


def mapped(word: str, places: dict[str, str]) -> str:
    for target in sorted(places, key=len, reverse=True):
        if word == target or word.startswith(f"{target}/"):
            return places[target] + word.removeprefix(target)
    return word


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_world(tmp_path)


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Verification]:
    """A world after the verification of its image, for tests that only read it."""
    made = a_world(tmp_path_factory.mktemp("verified"))
    plan = CheckPlan(
        target="gfx942",
        sessions=SESSIONS,
        effort=CheckOptions(),
        options=RunOptions(emulate=str(made.emulator), limit_seconds=77),
    )
    tools = Tools(engine=made.engine, folders=folders_in(made.folder), site=Site)
    (found,) = verify_images([made.verifiable()], plan, tools, Silent())
    assert isinstance(found, Verification)
    return made, found


def a_world(folder: Path) -> World:
    cell = a_cell(
        vendor="amd",
        toolkit=Toolkit(name="rocm", version="7.2"),
        targets=("gfx942",),
        python="3.13",
        torch="2.12.1",
        stack=(Pin(name="torch", version="2.12.1+rocm7.2"),),
        tag="2.12.1-rocm7.2-py3.13",
        smoke=(Smoke(name="vllm", imports=("vllm",)),),
    )
    engine = FakeEngine()
    labels = image_labels(
        cell,
        project=A_PROJECT,
        lock=a_lock(cell, a_wheel("torch", "2.12.1+rocm7.2")),
        base=A_RESOLVED_BASE,
        content_hash="aa",
        provenance=Provenance(created="2026-11-20T10:00:00+00:00", revision="01" * 20),
        uv="0.13.9",
    )
    image = engine.build(cell.local_reference, dict(labels))
    built = a_built_image(cell, image_id=image.id, content_hash="aa")
    stand_in_rocm_torch(folder)
    (folder / "session.py").write_text(SESSION)
    (folder / "bin").mkdir()
    (folder / "bin/python3").symlink_to(sys.executable)
    emulator = stand_in_emulator(folder / "emulator")
    made = World(cell, built, emulator, folder, engine)
    engine.programs["/emulator/bin/rocjitsu"] = made.in_a_process
    engine.programs["/emulator/bin/mirage"] = made.in_a_process
    return made


def outcomes(found: Verification, name: str) -> list[tuple[str, str]]:
    return [(c.outcome.value, c.reason) for c in found.checks if c.name == name]


def test_each_session_runs_below_the_emulator_and_the_whole_is_emulated(
    verified: tuple[World, Verification],
) -> None:
    """The session `stack` too, for the smoke of the image."""
    world, found = verified
    assert outcome_of(found) is Outcome.EMULATED
    assert found.sessions == (*EMULATED_SESSIONS, "stack")
    of_sessions = {check.session: check for check in found.checks if check.name == "emulation"}
    assert {name: one.outcome for name, one in of_sessions.items()} == dict.fromkeys(
        found.sessions, Outcome.EMULATED
    )
    dispatched = [one.reason.split()[0] for one in of_sessions.values()]
    assert dispatched == ["0", "1", "1", "1", "1"]
    assert {outcome for outcome, _ in outcomes(found, "device")} == {"emulated"}
    assert found.environment["emulator"] == {
        "root": str(world.emulator.resolve()),
        "launcher": "rocjitsu",
        "config": "share/rocjitsu/configs/gfx942_cdna3_kmd.json",
    }
    failure = failure_of([found])
    assert failure is not None
    assert failure.exit_code == 34


def test_a_session_runs_below_the_other_launcher_of_the_emulator(world: World) -> None:
    (world.emulator / "bin/rocjitsu").rename(world.emulator / "bin/mirage")
    found = world.verify("numerics")
    assert outcome_of(found) is Outcome.EMULATED
    assert [reason.split()[0] for _, reason in outcomes(found, "emulation")] == ["1"]
    emulator: Any = found.environment["emulator"]
    assert emulator["launcher"] == "mirage"


def test_the_labels_of_an_emulated_image_are_compared(world: World) -> None:
    assert outcomes(world.verify("load"), "labels and tag") == [
        ("passed", "2.12.1-rocm7.2-py3.13 is what the image holds")
    ]
    world.facts["toolkit"] = "rocm7.1"
    found = world.verify("load")
    ((outcome, reason),) = outcomes(found, "labels and tag")
    assert outcome == "failed"
    assert "label dev.warpfront.toolkit says 'rocm7.2', the image holds 'rocm7.1'" in reason
    assert outcome_of(found) is Outcome.FAILED


def test_emulated_is_the_word_in_the_ledger_the_page_and_why(
    verified: tuple[World, Verification],
) -> None:
    world, found = verified
    facts = CellFacts(cell=world.cell, lock="", build=world.built, verifications={"gfx942": found})
    (row,) = report_rows([facts])
    assert (row.verify, state_of(row)) == ("emulated", "emulated")

    image = world.engine.image(world.built.image_id)
    assert image is not None
    evidence = Evidence(
        cell=world.cell,
        labels=image.labels,
        identities=frozenset({world.built.image_id}),
        verifications={"gfx942": found},
    )
    channel = a_channel(sessions=EMULATED_SESSIONS)
    refused = admission(evidence, channel, now=found.ended)
    assert not refused.admitted
    dispatched = "emulated: 1 kernels were dispatched in rocJITsu"
    assert f"gfx942: golden/emulation: {dispatched}" in refused.against
    others = tuple(word for word in get_args(Allowance) if word != "emulated")
    assert not admission(
        evidence, dataclasses.replace(channel, allow=others), now=found.ended
    ).admitted
    named = admission(evidence, dataclasses.replace(channel, allow=("emulated",)), now=found.ended)
    assert (named.admitted, named.targets) == (True, ())

    published = cast("RegistryImage", SimpleNamespace(digest="sha256:1", config="sha256:2"))
    document = verification_payload(evidence, named, published)
    assert document.annotations["dev.warpfront.targets"] == ""
    assert "golden/emulation: emulated" in document.annotations["dev.warpfront.noted"]
    proof = Proof(
        cell_id=world.cell.id,
        content_hash="aa",
        targets=(on_target(found),),
        noted=named.noted,
    )
    why = Why(
        reference="registry.test/demo/torch:latest",
        digest="sha256:1",
        labels={},
        signature="none",
        making=None,
        proof=proof,
        identities=frozenset({world.built.image_id}),
    )
    lines = why_text(why).splitlines()
    assert [line for line in lines if line.startswith("  gfx942: emulated, ")]
    assert [
        line for line in lines if line.startswith("  let pass: gfx942: golden/emulation: emulated")
    ]


def test_a_container_gets_no_more_rights_and_a_limit_of_its_own(
    verified: tuple[World, Verification],
) -> None:
    world, found = verified
    for request, session in zip(world.engine.requests, found.sessions, strict=True):
        writable = [bind.target for bind in request.binds if bind.writable]
        assert writable == ["/results"]
        assert request.time_limit_seconds == 77
        assert not request.devices.nodes
        assert not request.devices.cdi
        assert request.command[:4] == (
            "/emulator/bin/rocjitsu", "--config", "/warpfront/emulator.json", "--",
        )  # fmt: skip
        assert request.command[request.command.index("--", 4) - 1] == session


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("silent", "nothing was emulated: no dispatch in the log of warpfront_canary_"),
        ("unnamed", "; the log names none of 2 kernels"),
        ("wrong", "a wrong result of warpfront_canary_"),
        ("wrong", "the canary kernel did not compute: it wrote [0, 10, 13, 16]"),
        ("idle", "nothing was emulated: no kernel of numerics was dispatched"),
    ],
)
def test_without_proof_of_work_nothing_was_emulated(world: World, fault: str, said: str) -> None:
    world.fault = fault
    found = world.verify("numerics")
    assert outcome_of(found) is Outcome.ERROR
    assert said in " ".join(reason for _, reason in outcomes(found, "emulation"))


def test_a_launcher_that_cannot_begin_is_an_error_with_its_words(world: World) -> None:
    (world.emulator / "lib/librocjitsu.so").rename(world.emulator / "lib/librocjitsu_kmd.so")
    found = world.verify("load")
    assert outcome_of(found) is Outcome.ERROR
    assert "rocjitsu: could not find librocjitsu.so" in outcomes(found, "emulation")[0][1]


@pytest.mark.parametrize(
    ("fault", "name", "said"),
    [
        ("finding", "one", "a lead, seen in emulation only: inf for 3"),
        ("race", "emulation", "a lead, seen in emulation only: 2 races, the first in warpfront_c"),
    ],
)
def test_a_failure_is_a_lead(world: World, fault: str, name: str, said: str) -> None:
    world.fault = fault
    found = world.verify("numerics")
    assert outcome_of(found) is Outcome.FAILED
    assert outcomes(found, name)[-1] == ("failed", outcomes(found, name)[-1][1])
    assert any(reason.startswith(said) for _, reason in outcomes(found, name))
    failure = failure_of([found])
    assert isinstance(failure, NotVerifiedError)
    assert "is a lead: try it on hardware" in failure.hint


def test_a_result_of_hardware_stays(world: World) -> None:
    emulated = world.verify("golden")
    hardware = dataclasses.replace(
        emulated,
        checks=tuple(
            dataclasses.replace(check, outcome=Outcome.PASSED) for check in emulated.checks
        ),
        environment={"check_options": {"quick": False}},
    )
    store = folders_in(world.folder).store
    store.save(world.cell.id, "verify-gfx942", sealed(hardware, ended="2026-11-27T12:00:00+00:00"))
    world.verify("golden")
    kept = store.load(world.cell.id, "verify-gfx942", (Verification,))
    assert kept is not None
    assert outcome_of(kept) is Outcome.PASSED


def test_the_configuration_is_found_by_what_it_holds(tmp_path: Path) -> None:
    root = stand_in_emulator(tmp_path / "emulator")
    found = find_emulator(root, "amd", "gfx942")
    assert found.config_file.endswith("gfx942_cdna3_kmd.json")
    assert found.config["plugins"] == {"race": {}}
    (root / "elsewhere").mkdir()
    (root / "elsewhere/gfx90a_next_year.json").write_text(json.dumps(device(90010)))
    assert find_emulator(root, "amd", "gfx90a").config_file == "elsewhere/gfx90a_next_year.json"


@pytest.mark.parametrize(
    ("vendor", "target", "gone", "said"),
    [
        ("nvidia", "sm_90", "", "there is no emulator for sm_90"),
        ("amd", "gfx1100", "", "no gfx1100*.json below it describes one device"),
        ("amd", "gfx942", "bin/rocjitsu", "no bin/rocjitsu or bin/mirage there"),
        ("amd", "gfx942", "lib/librocjitsu.so", "no lib/librocjitsu.so there"),
    ],
)
def test_what_cannot_be_emulated_is_said_before_a_container(
    tmp_path: Path, vendor: str, target: str, gone: str, said: str
) -> None:
    root = stand_in_emulator(tmp_path / "emulator")
    if gone:
        (root / gone).unlink()
    with pytest.raises(InputError) as refused:
        find_emulator(root, vendor, target)
    assert said in refused.value.message


def test_a_selection_that_cannot_be_emulated_starts_no_container(world: World) -> None:
    matrix = open_workspace(Path(__file__).parents[3]).matrix
    cells = tuple(cell for cell in matrix.cells if cell.vendor in {"amd", "nvidia"})
    inputs = CellInputs(cells=cells, locks={}, matrix=matrix, material=None)  # type: ignore[arg-type]
    options = RunOptions(emulate=str(world.emulator))
    plan = CheckPlan(target="", sessions=(), effort=CheckOptions(), options=options)
    tools = Tools(engine=world.engine, folders=folders_in(world.folder), site=Site)
    with pytest.raises(InputError, match="there is no emulator for sm_80"):
        verify_cells(inputs, plan, tools, Silent())
    assert world.engine.requests == []


def test_again_does_not_apply() -> None:
    with pytest.raises(InputError, match="--repeat does not apply"):
        RunOptions(emulate="/x", repeat=2)


def test_a_line_of_another_program_is_no_proof() -> None:
    log = DispatchLog(canary="warpfront_canary_1")
    for line in ("Kernel dispatch: warpfront_canary_1", '[rocjitsu] Kernel dispatch: "other"'):
        log.add(line)
    assert not log.is_dispatched
    assert not log.is_computed
    assert log.dispatches == 1


def test_only_failures_become_leads() -> None:
    checks: list[Any] = [
        CheckResult(session="golden", name=o.value, outcome=o, reason="r", seconds=0.0)
        for o in Outcome
    ]
    led = {check.name for check in as_leads(checks) if check.reason.startswith("a lead")}
    assert led == {"failed", "error"}
