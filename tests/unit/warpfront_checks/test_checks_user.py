"""The check `user` of the session load: a name, a home and a folder for temporary files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from warpfront_checks.load import check_user

NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


def test_a_user_with_a_name_and_a_home_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "uid_12345")

    found = check_user()

    assert (found.outcome, found.reason) == ("passed", f"uid_12345, {tmp_path}")
    assert found.details["uid"] == os.getuid()


@pytest.mark.parametrize("home", ["/nowhere", "relative", "~"])
def test_a_home_that_cannot_be_written_fails_with_what_to_set(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)

    found = check_user()

    assert found.outcome == "failed"
    assert found.reason.startswith("HOME cannot be written: ")
    assert f"set it to a folder of uid {os.getuid()}" in found.reason


@pytest.mark.parametrize("error", [KeyError("uid not found"), OSError("No username set")])
def test_a_user_without_a_name_fails_with_what_to_set(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As getpass of Python 3.12 and before raises, and as that of 3.13 does."""

    def nameless() -> str:
        raise error

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("getpass.getuser", nameless)

    found = check_user()

    assert found.outcome == "failed"
    assert found.reason.endswith(": set USER")


def test_no_folder_for_temporary_files_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "gettempdir", none)

    found = check_user()

    assert found.outcome == "failed"
    assert found.reason.endswith("add --tmpfs /tmp:exec")
