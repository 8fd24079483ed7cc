"""What a user reads where the guard made pip or uv refuse.

tests/refusals/<case>.<tool>.txt are recorded: what the tool itself said, in a virtual environment
with stand-ins of a ROCm stack and its guard's constraints, of a folder of stand-ins of PyPI's.
"""

from __future__ import annotations

import atexit
import io
import json
import logging
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import Golden
from guarded import rocm_policy

from warpfront_checks.guard.pip_listening import (
    _explain_at_exit,
    _Listener,
    listen_to_pip,
)
from warpfront_checks.guard.refusal import (
    explanation,
    read_demands,
)

RECORDED = Path(__file__).parents[2] / "refusals"
TOOLS = ["pip-23.0", "pip-26.3", "uv-0.13.8"]
# (what was asked of the tool, who wants what, by pip's account and by uv's)
CASES = {
    "direct": ("", "torch>=2.9"),  # pip install 'torch>=2.9'
    "dependant": ("needs-torch", "torch>=2.9"),  # needs-torch
    "extra": ("needs-extra", "torch"),  # 'needs-extra[gpu]'
    "sentinel": ("", "nvidia-cublas-cu12"),  # nvidia-cublas-cu12
    "sentineldep": ("needs-cuda", "nvidia-cublas-cu12"),  # needs-cuda, of which there are two
    "companion": ("", "torchvision"),  # torchvision, of which there are PyPI's only
    "companiondirect": ("", "torchaudio"),  # torchaudio, of which there is none
    "companiondep": ("needs-vision", "torchvision"),  # needs-vision
    "companionpin": ("", "torchvision==0.24.0"),  # torchvision==0.24.0
    "triton": ("needs-triton", "triton>=3.5"),  # needs-triton, against the shim
    "tritondirect": ("", "triton>=3.5"),  # 'triton>=3.5'
    "missing": ("", "pytorch-triton-rocm>3.4"),  # 'pytorch-triton-rocm>3.4', pinned without label
}


def said(case: str, tool: str) -> str:
    return (RECORDED / f"{case}.{tool}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("case", CASES)
def test_who_wants_what_is_read_from_what_the_tool_said(case: str, tool: str) -> None:
    package, wanted = CASES[case]
    demand = read_demands(said(case, tool), rocm_policy())[0]
    assert demand.package == package
    assert demand.text.startswith(wanted)


@pytest.mark.parametrize("path", sorted(RECORDED.iterdir()), ids=lambda path: path.stem)
def test_the_explanation_of_every_recorded_refusal(path: Path, golden: Golden) -> None:
    text = explanation(path.read_text(encoding="utf-8"), rocm_policy())
    golden(f"refusals/{path.name}", text)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("case", ["unrelated", "unknown", "public"])
def test_what_has_nothing_to_do_with_the_guard_is_left_to_the_tool(case: str, tool: str) -> None:
    """Two packages that do not go together, a name that is not there, a success."""
    assert explanation(said(case, tool), rocm_policy()) == ""


@pytest.mark.parametrize("case", ["reinstall", "wheelfile", "notequal"])
def test_where_uv_names_nobody_the_torch_that_stays_is_named_all_the_same(case: str) -> None:
    text = explanation(said(case, "uv-0.13.8"), rocm_policy())
    assert text.startswith("warpfront guard: this image holds torch 2.8.0+rocm6.4, which stays")


def test_pips_range_is_shown_whole() -> None:
    [demand] = read_demands(said("extra", "pip-26.3"), rocm_policy())
    assert (demand.requirer, demand.text) == ("needs-extra[gpu] 1.0", "torch<3,>=2.9")
    assert "relax needs-extra --reason" in explanation(said("extra", "pip-26.3"), rocm_policy())


def test_the_file_that_pip_was_given_is_named_by_its_version() -> None:
    text = explanation(said("wheelfile", "pip-23.0"), rocm_policy())
    assert "the command wants torch 2.9.0; this image holds torch 2.8.0+rocm6.4" in text


def test_lines_that_uv_wraps_read_as_one() -> None:
    flat = " ".join(said("triton", "uv-0.13.8").split())
    for width in range(20, 120, 7):
        lines = textwrap.wrap(flat, width, break_long_words=False, break_on_hyphens=False)
        [demand] = read_demands("\n         ".join(lines), rocm_policy())
        assert (demand.requirer, demand.text) == ("needs-triton", "triton>=3.5")


def test_the_command_for_a_companion_names_the_index_that_has_it() -> None:
    policy = rocm_policy(index="https://download.pytorch.org/whl/rocm6.4")
    text = explanation(said("companion", "pip-26.3"), policy)
    assert (
        "to have it: pip install --index-url https://download.pytorch.org/whl/rocm6.4"
        " 'torchvision==0.23.0+rocm6.4'" in text
    )


def test_a_sentinel_is_explained_by_its_label() -> None:
    text = explanation(said("sentinel", "uv-0.13.8"), rocm_policy())
    assert "which must not come into this image: rocm image has no cuda." in text


def test_a_relaxed_name_is_not_spoken_of() -> None:
    policy = rocm_policy().relax("torch", "we bring our own")
    assert explanation(said("direct", "pip-26.3"), policy) == ""


def test_at_most_three_demands_are_explained() -> None:
    many = "\n".join(f"    p{number} 1.0 depends on torch>=2.9" for number in range(9))
    assert explanation(many, rocm_policy()).count(" wants torch>=2.9;") == 3


@pytest.fixture
def policy_folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.json").write_text(json.dumps(rocm_policy().document()))
    return tmp_path


def listener_that_heard(*messages: tuple[int, str]) -> _Listener:
    listener, logger = _Listener(), logging.Logger("pip")  # noqa: LOG001 - not one of the suite's own
    logger.addHandler(listener)
    for level, message in messages:
        logger.log(level, message)
    return listener


def test_pips_errors_are_heard_and_its_chatter_is_not() -> None:
    listener = listener_that_heard(
        (logging.INFO, "Collecting torch>=2.9"),
        (logging.INFO, "\nThe conflict is caused by:\n    The user requested torch>=2.9"),
        (logging.CRITICAL, "Cannot install torch>=2.9"),
    )
    assert len(listener.messages) == 2


def test_pip_is_explained_once_it_ends(
    policy_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _explain_at_exit(
        listener_that_heard((logging.ERROR, said("direct", "pip-26.3"))), policy_folder
    )
    assert capsys.readouterr().err.startswith("warpfront guard: the command wants torch>=2.9;")


def test_a_pip_that_said_nothing_is_not_answered(
    policy_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _explain_at_exit(_Listener(), policy_folder)
    assert capsys.readouterr().err == ""


def test_without_a_policy_the_reader_is_told_why_there_is_no_explanation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _explain_at_exit(listener_that_heard((logging.ERROR, "x")), tmp_path)
    assert "policy.json: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("closed", [True, False])
def test_a_process_without_stderr_ends_quietly(
    policy_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    closed: bool,  # noqa: FBT001
) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream if closed else None)
    _explain_at_exit(
        listener_that_heard((logging.ERROR, said("direct", "pip-26.3"))), policy_folder
    )
    assert stream.closed


def test_listening_is_one_handler_on_pips_own_logger(
    policy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[object] = []
    monkeypatch.setattr(atexit, "register", lambda function, *_: registered.append(function))
    logger = logging.getLogger("pip._internal")
    before = list(logger.handlers)
    try:
        listen_to_pip(policy_folder)
        assert len(logger.handlers) == len(before) + 1
        assert registered == [_explain_at_exit]
    finally:
        logger.handlers[:] = before
