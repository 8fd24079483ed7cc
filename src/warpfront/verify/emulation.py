"""AMD's emulator rocJITsu around the sessions of `verify --emulate`: its files, its command line
and the proof that it computed. Path.

Facts are of ROCm/rocm-systems, emulation/rocjitsu: tools/rocjitsu/main.cpp @0af565a (options, the
library next to `bin`, exit codes), cli/docs/cli.md @3fcb908 (`run --in-process`), docs/plugins.md
@02222e6 (plug-ins and their output are part of the configuration), plugins/race_detector (its line
for each dispatch has the kernel's name). The emulator was never run by this project.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from warpfront.errors import InputError
from warpfront.images.engine.protocol import Bind, RunRequest
from warpfront.matrix.cell import DeviceAccess
from warpfront.matrix.vendors import VENDORS
from warpfront.system.texts import counted
from warpfront.verify.results import CheckResult, Outcome
from warpfront_checks.emulation_canary import COMPUTED

# The other sessions dispatch a hundred times as many kernels: hours in an emulator.
EMULATED_SESSIONS = ("load", "numerics", "golden", "devices")
_COMPUTE = frozenset({"numerics", "golden", "devices"})
_ROOT, _CONFIG = "/emulator", "/warpfront/emulator.json"
_CANARY = "/warpfront/src/warpfront_checks/emulation_canary.py"
# The older program takes the options alone; `mirage`, of summer 2026, has a command for them.
_LAUNCHERS = {"rocjitsu": (), "mirage": ("run", "--in-process")}
_LIBRARIES = ("librocjitsu.so", "librocjitsu_kmd.so")
# Each is created below an existing folder, in memory.
_FOLDERS = {
    "ROCJITSU_RUNTIME_DIR": "/tmp",  # noqa: S108 - in the container
    "ROCJITSU_CLI_RUNTIME_DIR": "/tmp/rocjitsu-run",  # noqa: S108 - the same
    "MIRAGE_RUNTIME": "/tmp/rocjitsu-run",  # noqa: S108 - the same
    "XDG_CONFIG_HOME": "/tmp",  # noqa: S108 - the same
}
_DISPATCH = re.compile(r'\[rocjitsu\] Kernel dispatch: "([^"]*)"')
_RACE = re.compile(r"RACE kernel=(\S+)")
LEAD = "a lead, seen in emulation only"


@dataclass(frozen=True, kw_only=True)
class Emulator:
    """An emulator's folder, the program in it that starts others, and the configuration of one
    device, with the plug-in that logs each dispatch.
    """

    root: Path
    launcher: str
    config_file: str
    config: Mapping[str, object]

    def around(self, request: RunRequest, config: Path, canary: str) -> RunRequest:
        """Return the request with its command below the emulator, after the canary kernel. The
        emulator is mounted read-only, and the container gets no device.
        """
        return dataclasses.replace(
            request,
            command=(
                *(f"{_ROOT}/bin/{self.launcher}", *_LAUNCHERS[self.launcher]),
                *("--config", _CONFIG, "--", "python3", _CANARY, canary, *request.command),
            ),
            binds=(
                *request.binds,
                Bind(source=self.root, target=_ROOT),
                Bind(source=config, target=_CONFIG),
            ),
            environment={**request.environment, **_FOLDERS},
            devices=DeviceAccess(),
        )

    def document(self) -> dict[str, object]:
        return {"root": str(self.root), "launcher": self.launcher, "config": self.config_file}


def find_emulator(folder: Path, vendor: str, target: str) -> Emulator:
    """Return the emulator in `folder` for a target. Raise `InputError` for a target that it does
    not emulate, and for a folder without launcher, library or configuration.
    """
    version = VENDORS[vendor].emulated_version(target)
    if version is None:
        hint = "AMD's targets have: gfx942"
        raise InputError(f"--emulate: there is no emulator for {target}", hint=hint)
    root = folder.resolve()
    launcher = next((name for name in _LAUNCHERS if (root / "bin" / name).is_file()), None)
    libraries = [root / place / name for place in ("lib", "lib64") for name in _LIBRARIES]
    if launcher is None or not any(map(Path.is_file, libraries)):
        missing = "bin/rocjitsu or bin/mirage" if launcher is None else "lib/librocjitsu.so"
        hint = 'the folder of an installed rocJITsu: --emulate "$(rocm-sdk path --root)"'
        raise InputError(f"--emulate {folder}: no {missing} there", hint=hint)
    file, config = _configuration(root, target, version)
    # The launcher refuses options for plug-ins together with a file, so the file lists them.
    logged = {**config, "plugins": {"race": {}}, "sinks": {"types": ["stderr"]}}
    name = str(file.relative_to(root))
    return Emulator(root=root, launcher=launcher, config_file=name, config=logged)


def _configuration(root: Path, target: str, version: int) -> tuple[Path, Mapping[str, object]]:
    """Return the configuration of one device of the target, by what the files contain: their names
    were changed twice in 2026. One with a render node, which HIP opens, comes first.
    """
    fitting = []
    for file in sorted(root.rglob(f"{target}*.json")):
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
            gpu = config["vm"]["gpu"]
            device = gpu["device"]
            is_one = gpu.get("num_gpus", 1) == 1 and device["gfx_target_version"] == version
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if is_one:
            fitting.append(("drm_render_minor" not in device, len(file.name), file, config))
    if not fitting:
        message = f"no {target}*.json below it describes one device of {target}"
        hint = "an emulator of a newer ROCm may have it"
        raise InputError(f"--emulate {root}: {message}", hint=hint)
    _, _, file, config = min(fitting, key=lambda row: row[:3])
    return file, config


@dataclass(kw_only=True)
class DispatchLog:
    """Kernels that the emulator logged in one container. `canary` is the kernel of this run."""

    canary: str
    is_dispatched: bool = False
    is_computed: bool = False
    dispatches: int = 0
    unnamed: int = 0
    races: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.is_computed |= line == f"{self.canary}{COMPUTED}"
        if (match := _DISPATCH.search(line)) is not None:
            self.is_dispatched |= match[1] == self.canary
            self.dispatches += match[1] != self.canary
            self.unnamed += match[1] == "?"
        elif (race := _RACE.match(line)) is not None:
            self.races.append(race[1])

    def check(self, session: str, emulator: Emulator, last_lines: Iterable[str]) -> CheckResult:
        """Return the check that the emulator computed in this session: an error without proof,
        failed for a race that it reports, else emulated.
        """
        outcome, reason = Outcome.EMULATED, f"{self.dispatches} kernels were dispatched in rocJITsu"
        if not self.is_dispatched or not self.is_computed:
            outcome = Outcome.ERROR
            cause = "a wrong result" if self.is_dispatched else "no dispatch in the log"
            reason = f"nothing was emulated: {cause} of {self.canary}"
            if self.unnamed:
                reason += f"; the log names none of {self.unnamed} kernels"
            reason += "".join(f"\n  {line}" for line in last_lines)
        elif session in _COMPUTE and not self.dispatches:
            outcome = Outcome.ERROR
            reason = f"nothing was emulated: no kernel of {session} was dispatched"
        elif self.races:
            outcome = Outcome.FAILED
            reason = f"{LEAD}: {counted(len(self.races), 'race')}, the first in {self.races[0]}"
        details = {"dispatches": self.dispatches, "races": self.races[:20]}
        return CheckResult(
            session=session,
            name="emulation",
            outcome=outcome,
            reason=reason,
            details={**emulator.document(), **details},
        )


def as_leads(checks: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """Return the checks with failures called leads."""
    # An emulator may be wrong by itself: ROCm/rocm-systems#5709, #6053.
    wrong = {Outcome.FAILED, Outcome.ERROR}
    return tuple(
        dataclasses.replace(check, reason=f"{LEAD}: {check.reason}")
        if check.outcome in wrong
        else check
        for check in checks
    )
