"""A user of whom an image knows nothing has a name and a private home: `docker run --user 1234`."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from warpfront_checks.guard import user_environment
from warpfront_checks.guard.user_environment import MARK, provide

UNKNOWN = 3_012_345
LIBRARY = Path(user_environment.__file__).parent


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, where this process is the user without an entry."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(user_environment, "_entry", lambda _uid: None)
    return folder


def provided(base: Path, **given: str) -> dict[str, str]:
    environment = {"TMPDIR": str(base), **given}
    assert provide(environment, os.getuid()) == ""
    return environment


def test_a_user_without_an_entry_gets_a_name_that_says_the_uid(base: Path) -> None:
    found = provided(base, HOME="/nowhere")

    assert found["LOGNAME"] == found["USER"] == f"uid_{os.getuid()}"


def test_a_home_that_cannot_be_written_is_replaced_by_a_private_one(base: Path) -> None:
    for home in ("", "/nowhere", "relative"):
        found = provided(base, HOME=home)

        assert Path(found["HOME"]) == base / f"warpfront-{os.getuid()}"
        assert stat.S_IMODE(Path(found["HOME"]).stat().st_mode) == 0o700


def test_what_the_caller_set_and_can_be_used_stays(base: Path, tmp_path: Path) -> None:
    found = provided(base, HOME=str(tmp_path), USER="jo")

    assert found == {"TMPDIR": str(base), "HOME": str(tmp_path), "USER": "jo"}
    assert list(base.iterdir()) == []


def test_a_home_of_the_caller_stays_where_only_the_name_is_missing(
    base: Path, tmp_path: Path
) -> None:
    found = provided(base, HOME=str(tmp_path))

    assert found["HOME"] == str(tmp_path)
    assert found["USER"] == f"uid_{os.getuid()}"
    assert found["TMPDIR"] == f"{base}/warpfront-{os.getuid()}/temporary", (
        "inductor's files go there"
    )


def test_a_user_with_an_entry_and_a_home_is_left_alone(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}

    assert provide(environment, os.getuid()) == ""
    assert environment == {"HOME": str(tmp_path)}


@pytest.mark.parametrize("trap", ["open", "link", "file"])
def test_a_folder_that_another_user_could_have_filled_is_not_used(base: Path, trap: str) -> None:
    usual = base / f"warpfront-{os.getuid()}"
    if trap == "open":
        usual.mkdir()
        usual.chmod(0o777)
    elif trap == "link":
        (base / "theirs").mkdir()
        usual.symlink_to(base / "theirs")
    else:
        usual.write_text("")

    found = Path(provided(base, HOME="/nowhere")["HOME"])

    assert found != usual
    assert found.name.startswith(f"{usual.name}-")
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_a_folder_of_another_owner_is_not_used(base: Path) -> None:
    if os.getuid():
        pytest.skip("only root can make a folder of another owner")
    usual = base / f"warpfront-{os.getuid()}"
    usual.mkdir(mode=0o700)
    os.chown(usual, UNKNOWN, UNKNOWN)

    assert provided(base, HOME="/nowhere")["HOME"] != str(usual)


def test_a_temporary_folder_inside_that_is_a_trap_is_not_used_either(base: Path) -> None:
    usual = base / f"warpfront-{os.getuid()}"
    usual.mkdir(mode=0o700)
    (usual / "temporary").symlink_to(base)

    assert provided(base, HOME="/nowhere")["HOME"] != str(usual)


def test_a_process_that_changed_its_uid_gets_nothing_of_the_other(base: Path) -> None:
    folder = base / "warpfront-77"
    environment = {
        "LOGNAME": "uid_77",
        "USER": "set since",
        "HOME": str(folder),
        "TMPDIR": f"{folder}/temporary",
        MARK: f"77 {folder}",
    }
    user_environment._take_back(environment, "uid_77", str(folder))

    assert environment == {"USER": "set since"}


def test_a_child_does_not_look_again(base: Path) -> None:
    first = provided(base, HOME="/nowhere")
    again = dict(first, HOME="/set/by/the/program")

    assert provide(again, os.getuid()) == ""
    assert again["HOME"] == "/set/by/the/program"


def test_where_nothing_can_be_written_one_sentence_names_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_environment, "_make_private", lambda _folder, _uid: False)
    environment = {"HOME": "/", "USER": "jo"}

    sentence = provide({**environment}, UNKNOWN) if os.getuid() else ""
    environment["HOME"] = "/nowhere"
    sentence = sentence or provide(environment, UNKNOWN)

    assert "set HOME to a folder of this uid" in sentence
    assert f"uid {UNKNOWN} can write neither its HOME (/" in sentence
    assert provide(environment, UNKNOWN) == "", "once for a process and its children"


# What torch 2.9.1 and 2.12.1 do when `torch._inductor` is imported, after their wheels on PyPI:
# torch/_inductor/runtime/cache_dir_utils.py (default_cache_dir: tempfile's folder and
# `torchinductor_` with getpass.getuser(), and no except) is called by a constant of
# torch/_inductor/codecache.py (_HEADER_DIR) whatever TORCHINDUCTOR_CACHE_DIR says. A stand-in:
# these releases are not installed here.
_INDUCTOR = """
    import getpass, os, tempfile
    HEADERS = os.path.join(tempfile.gettempdir(), "torchinductor_" + getpass.getuser(), "headers")
    os.makedirs(HEADERS, exist_ok=True)
    print(HEADERS)
    print(os.path.expanduser("~"))
"""


@pytest.mark.process
@pytest.mark.parametrize("home", ["/", "", None])
def test_inductor_of_torch_before_2_13_is_imported_by_such_a_user(
    tmp_path: Path, home: str | None
) -> None:
    if os.getuid():
        pytest.skip("only root can become another user")
    library = tmp_path / "warpfront_guard"
    library.mkdir()
    for name in ("__init__.py", "startup.py", "user_environment.py"):
        (library / name).write_text((LIBRARY / name).read_text(encoding="utf-8"), encoding="utf-8")
    temporary = tmp_path / "shared"
    temporary.mkdir()
    temporary.chmod(0o1777)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    script = (
        # This Python may lie where only its own user can read, so all is loaded first.
        "import getpass, os, pwd, sys, tempfile\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from warpfront_guard import startup\n"
        f"os.setgroups([]); os.setgid(0); os.setuid({UNKNOWN}); os.chdir('/')\n"
        "startup.start()\n" + textwrap.dedent(_INDUCTOR)
    )
    environment = {"TMPDIR": str(temporary), **({} if home is None else {"HOME": home})}

    done = subprocess.run(
        [sys.executable, "-I", "-c", script], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    headers, expanded = done.stdout.splitlines()
    assert expanded == str(temporary / f"warpfront-{UNKNOWN}")
    assert Path(headers).parent.name == f"torchinductor_uid_{UNKNOWN}"
    assert Path(expanded).stat().st_uid == UNKNOWN
