"""Every session asks first whether its device is here, and computes nothing where it is not. torch
is a stand-in that sees what a case says; the machine is a recording.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from warpfront.cli.sessions import claims_for_target
from warpfront_checks import __main__ as checks
from warpfront_checks.check_options import CHECK_SESSIONS, SESSIONS, CheckOptions, CheckSession
from warpfront_checks.hardware.recording import Recorded
from warpfront_checks.results import Recorder

RECORDINGS = Path(__file__).parents[2] / "detect"
CHECKS = Path(checks.__file__).parent
COMPUTING = (*SESSIONS[1:], "selftest")


def a_torch(**version: str) -> Any:
    """A torch of one build, without devices."""
    return SimpleNamespace(
        __version__="2.14.1",
        version=SimpleNamespace(**{"cuda": None, "hip": None, **version}),
        cuda=SimpleNamespace(is_available=lambda: False, init=lambda: None, get_arch_list=list),
        _C=SimpleNamespace(),
        backends=MagicMock(),
        **dict.fromkeys(("float32", "bfloat16", "float16")),
    )


def recorded(
    session: str, target: str, folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str
) -> tuple[bool, dict[str, Any]]:
    monkeypatch.setattr(checks, "Machine", lambda: Recorded(RECORDINGS / machine))
    recorder = Recorder(session=session, target=target, folder=folder)
    checks.record(session, claims_for_target(target), recorder, CheckOptions(quick=True))
    return recorder.finish(), json.loads((folder / f"{session}.json").read_text())


def stand_in(monkeypatch: pytest.MonkeyPatch, session: str, compute: Callable[..., None]) -> None:
    """What a session runs, replaced."""
    name = "warpfront_checks.stand_in"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(compute=compute))
    row = CheckSession(says="", record="stand_in:compute")
    monkeypatch.setitem(CHECK_SESSIONS, session, row)


@pytest.mark.parametrize("session", CHECK_SESSIONS)
def test_every_row_names_functions_that_take_claims_recorder_and_effort(session: str) -> None:
    module, _, function = CHECK_SESSIONS[session].record.partition(":")
    path = CHECKS / f"{module.replace('.', '/')}.py"
    found = {
        node.name: [argument.arg.lstrip("_") for argument in node.args.args]
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    assert found[function] == ["claims", "recorder", "effort"]


@pytest.mark.parametrize("session", COMPUTING)
@pytest.mark.parametrize(
    ("torch", "target", "machine", "said"),
    [
        (a_torch(cuda="13.0"), "sm_90", "none", "unavailable: no sm_90 device here"),
        (a_torch(hip="7.2"), "gfx942", "none", "unavailable: no gfx942 device here"),
        (a_torch(), "sm_90", "h100", "failed: torch is a cpu build"),
        (a_torch(cuda="13.0"), "sm_90", "h100", "failed: 1 sm_90 devices are here, and torch"),
    ],
    ids=["no NVIDIA", "no AMD", "another build", "not seen"],
)
def test_without_its_device_a_session_says_so_once_and_computes_nothing(  # noqa: PLR0917 - cases
    session: str,
    torch: Any,
    target: str,
    machine: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compute(*_: object) -> None:
        raise AssertionError("computed")

    monkeypatch.setitem(sys.modules, "torch", torch)
    stand_in(monkeypatch, session, compute)
    complete, document = recorded(session, target, tmp_path, monkeypatch, machine)
    (check,) = document["checks"]
    assert not complete
    assert document["planned"] == ["device"]
    assert check["name"] == "device"
    assert f"{check['outcome']}: {check['reason']}".startswith(said)


def test_what_was_asked_for_is_in_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", a_torch())
    stand_in(monkeypatch, "golden", lambda *_: None)
    complete, document = recorded("golden", "cpu", tmp_path, monkeypatch, "none")
    assert complete
    assert document["environment"]["check_options"] == {
        "quick": True,
        "profile": "strict",
        "seeds": 1,
        "run": "0",
        "seed_values": [0],
    }
