"""The `uv` of a guarded image is the real uv, with a word more when it refuses."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from guarded import compiled_guard, cpu_policy

from warpfront_checks.guard.launcher import _as_dry_run, command_of, overrides_of, real_uv
from warpfront_checks.guard.refusal import explanation

FAKE_UV = r"""#!/bin/sh
printf '%s\t' "${RUST_LOG+ahead}" "$@" >>CALLS
echo >>CALLS
if [ "${RUST_LOG+ahead}" ]; then printf '%s' "$FAKE_LOG" >&2; exit; fi
told() { case " $ARGUMENTS " in *" $1 "*) ;; *) return 1 ;; esac; }
ARGUMENTS="$*"
if told loud; then echo resolving >&2; fi
if told slow; then echo started; exec /bin/sleep 30; fi
if told refused; then
  echo "error: No solution found" >&2
  echo "  cause: Because you require torch>=2.15 and" >&2
  echo "         torch==2.13.0+cpu, we can conclude that your requirements are unsatisfiable." >&2
  exit 1
fi
if told overridden; then
  echo "  cause: Because app==1.0 depends on torch>=2.15 and torch==2.13.0+cpu, we can conclude" >&2
  exit 1
fi
echo "uv did $*"
exit "${FAKE_EXIT:-0}"
"""


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["pip", "install", "torch"], ("pip", "install")),
        (["--quiet", "pip", "install", "-U", "torch"], ("pip", "install")),
        (["--config-file", "my.toml", "pip", "sync", "x.txt"], ("pip", "sync")),
        (["--directory=pip", "add", "torch"], ("add",)),
        (["--project", "pip", "sync"], ("sync",)),
        (["tool", "run", "pip", "install"], ("tool", "run")),
        (["run", "pip", "install"], ("run",)),
        (["pip"], ("pip",)),
        (["--version"], ()),
        (["--project"], ()),
        ([], ()),
    ],
)
def test_the_command_is_found_behind_options(
    arguments: list[str], command: tuple[str, ...]
) -> None:
    assert command_of(arguments) == command


def test_the_dry_run_comes_before_what_is_installed() -> None:
    command = ("pip", "install")
    assert _as_dry_run(["pip", "install", "-U", "--", "torch"], command) == [
        "pip",
        "install",
        "--dry-run",
        "-U",
        "--",
        "torch",
    ]
    given = ["pip", "install", "--dry-run", "torch"]
    assert _as_dry_run(given, command) == given


def an_executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_the_real_uv_is_the_next_one_on_the_path(tmp_path: Path) -> None:
    an_executable(tmp_path / "home/bin/uv")
    real = an_executable(tmp_path / "real/uv")
    path = f"/nowhere:{tmp_path}/home/bin::{tmp_path}/real"
    assert real_uv(path, tmp_path / "home") == str(real)


@pytest.mark.parametrize("way", ["bin/", "bin/.", "lib/../bin", "link"])
def test_the_launcher_never_finds_itself(tmp_path: Path, way: str) -> None:
    an_executable(tmp_path / "home/bin/uv")
    (tmp_path / "home/lib").mkdir()
    (tmp_path / "home/link").symlink_to("bin")
    assert real_uv(f"{tmp_path}/home/{way}", tmp_path / "home") is None


def test_a_link_to_the_launcher_elsewhere_is_the_launcher(tmp_path: Path) -> None:
    ours = an_executable(tmp_path / "home/bin/uv")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/uv").symlink_to(ours)
    assert real_uv(f"{tmp_path}/other", tmp_path / "home") is None


class Launched:
    """The launcher as an image has it, in front of a stand-in of uv that writes down its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "calls"
        library = folder / "home/lib"
        shutil.copytree(compiled_guard(), library / "warpfront_guard", copy_function=os.link)
        program = "import sys\nfrom warpfront_guard.launcher import main\n"
        text = f"#!{sys.executable} -S\n{program}sys.exit(main(sys.argv[1:]))\n"
        an_executable(folder / "home/bin/uv", text)
        an_executable(folder / "real/uv", FAKE_UV.replace("CALLS", str(self.log)))
        self.environment = {
            "PATH": f"{folder}/home/bin:{folder}/real",
            "PYTHONPATH": str(library),
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "home/bin/uv", *arguments],
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[list[str]]:
        """What it was started with, without the looks ahead."""
        lines = [line.split("\t") for line in self.log.read_text().splitlines()]
        return [arguments for ahead, *arguments, _ in lines if not ahead]


@pytest.fixture
def launched(tmp_path: Path) -> Launched:
    found = Launched(tmp_path)
    policy = tmp_path / "home/guard/policy.json"
    policy.parent.mkdir()
    policy.write_text(json.dumps(cpu_policy().document()))
    return found


@pytest.mark.process
def test_a_command_that_is_not_explained_becomes_uv(launched: Launched) -> None:
    done = launched.run("run", "refused.py", FAKE_EXIT="3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "uv did run refused.py\n", "")


@pytest.mark.process
def test_a_success_is_left_alone(launched: Launched) -> None:
    done = launched.run("pip", "install", "six")
    assert (done.returncode, done.stdout, done.stderr) == (0, "uv did pip install six\n", "")
    assert len(launched.calls()) == 1


@pytest.mark.process
def test_a_failure_that_is_not_the_guards_keeps_its_code_and_gets_no_word(
    launched: Launched,
) -> None:
    done = launched.run("pip", "install", "six", FAKE_EXIT="2")
    assert (done.returncode, done.stderr) == (2, "")


@pytest.mark.process
@pytest.mark.parametrize(
    "command", [("pip", "install"), ("--config-file", "x", "pip", "install"), ("add",), ("lock",)]
)
def test_a_refusal_is_explained_after_uvs_own_words(
    launched: Launched, command: tuple[str, ...]
) -> None:
    done = launched.run(*command, "refused")
    assert done.returncode == 1
    own, _, ours = done.stderr.partition("warpfront guard: ")
    assert own.startswith("error: No solution found")
    assert ours.startswith("the command wants torch>=2.15; this image holds torch 2.13.0+cpu")
    assert launched.calls() == [[*command, "refused"]]


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "again"),
    [
        (["pip", "install", "refused"], ["pip", "install", "--dry-run", "refused"]),
        (["pip", "install", "-r", "-", "refused"], None),
        (["add", "refused"], None),
    ],
)
def test_on_a_terminal_uv_keeps_it_and_is_asked_again_where_that_does_nothing(
    launched: Launched, arguments: list[str], again: list[str] | None
) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [launched.folder / "home/bin/uv", *arguments], env=launched.environment, stderr=theirs
    ) as child:
        assert child.wait(timeout=120) == 1
    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert said.startswith("error: No solution found")
    assert ("warpfront guard: the command wants torch>=2.15" in said) is (again is not None)
    assert launched.calls() == ([arguments, again] if again else [arguments])


@pytest.mark.process
def test_what_uv_says_arrives_while_it_works(launched: Launched) -> None:
    with subprocess.Popen(
        [launched.folder / "home/bin/uv", "pip", "install", "slow", "loud"],
        env=launched.environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stderr is not None
        assert child.stderr.readline() == "resolving\n"
        assert child.poll() is None
        os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.process
def test_without_a_policy_uvs_own_words_and_code_stay(launched: Launched) -> None:
    (launched.folder / "home/guard/policy.json").unlink()
    done = launched.run("pip", "install", "refused")
    assert done.returncode == 1
    assert "error: No solution found" in done.stderr
    assert "warpfront guard: no explanation: " in done.stderr


@pytest.mark.process
def test_without_a_uv_the_launcher_says_so(launched: Launched) -> None:
    (launched.folder / "real/uv").unlink()
    done = launched.run("--version")
    assert done.returncode == 127
    assert done.stderr.startswith("uv: not found")


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_ends_both(launched: Launched, number: int, code: int) -> None:
    """SIGTERM reaches uv, whose end is told as a shell tells it; SIGKILL reaches the launcher."""
    with subprocess.Popen(
        [launched.folder / "home/bin/uv", "pip", "install", "slow"],
        env=launched.environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "started\n"
        time.sleep(0.1)
        child.send_signal(number)
        assert child.wait(timeout=120) == code
        os.killpg(child.pid, signal.SIGKILL) if number == signal.SIGKILL else None


def a_log(*versions: str, wants: str = "torch>=2.15.0, <2.15.0+") -> str:
    """As uv's resolver writes it: each release, the last of which goes with the image's torch."""
    asked = dict.fromkeys(versions, wants) | {versions[-1]: "torch*"}
    return "".join(
        f"DEBUG Selecting: vllm=={one} [compatible] (vllm-{one}-py3-none-any.whl)\n"
        f"DEBUG Adding transitive dependency for vllm=={one}: {wanted}\n"
        for one, wanted in asked.items()
    )


@pytest.mark.process
def test_uv_is_not_started_where_it_would_go_back_far(launched: Launched) -> None:
    log = a_log("0.33.0", "0.32.1", "0.32.0", "0.2.5")
    done = launched.run("pip", "install", "vllm", FAKE_LOG=log)
    assert done.returncode == 1
    assert launched.calls() == []
    assert done.stderr.splitlines() == [
        f"warpfront guard: {line}"
        for line in (
            "vllm 0.33.0 wants torch==2.15.0; this image holds torch 2.13.0+cpu, which stays.",
            "  vllm 0.2.5 is what is taken in the place of 3 releases of vllm.",
            "  to keep the image's: take a version of vllm that accepts it",
            "  to have vllm beside it all the same: warpfront-guard relax vllm --reason TEXT",
            (
                "stopped before it is fetched. To have an older vllm all the same, name its"
                " version, or set WARPFRONT_GUARD_OLDER=1"
            ),
        )
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    ("log", "environment"),
    [
        (a_log("0.33.0", "0.2.5"), {}),
        (a_log("0.33.0", "0.32.1", "0.32.0", "0.2.5"), {"WARPFRONT_GUARD_OLDER": "1"}),
    ],
)
def test_a_step_back_or_one_that_is_meant_is_said_and_done(
    launched: Launched, log: str, environment: dict[str, str]
) -> None:
    done = launched.run("pip", "install", "vllm", FAKE_LOG=log, **environment)
    assert (done.returncode, done.stdout) == (0, "uv did pip install vllm\n")
    assert "vllm 0.33.0 wants torch==2.15.0" in done.stderr
    assert "vllm 0.2.5 is what is taken in the place of" in done.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    "log",
    [
        a_log("0.33.0"),
        a_log("0.33.0", "0.32.1", "0.32.0", "0.2.5", wants="numpy>=3"),
        a_log("0.33.0", "0.32.1", "0.32.0", "0.2.5", wants="torch{sys_platform == 'linux'}*"),
        "",
    ],
)
def test_what_goes_back_for_other_reasons_is_uvs_own_affair(launched: Launched, log: str) -> None:
    done = launched.run("pip", "install", "vllm", FAKE_LOG=log)
    assert (done.returncode, done.stderr) == (0, "")


NEEDS = {"sympy": ">=1.13.3", "setuptools": ">=77", "filelock": ">=3"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "log", "who"),
    [
        (("pip", "install", "--no-deps", "sympy==1.5"), "", "the command"),
        (
            ("pip", "install", "app"),
            (
                "DEBUG Selecting: app==1.0 [compatible] (app-1.0-py3-none-any.whl)\n"
                "DEBUG Adding transitive dependency for app==1.0: sympy<1.6\n"
            ),
            "app 1.0",
        ),
    ],
)
def test_uv_is_not_started_where_it_would_bring_what_torch_cannot_work_with(
    launched: Launched, arguments: tuple[str, ...], log: str, who: str
) -> None:
    held = cpu_policy(needs=NEEDS, protected={"torch": "2.13.0+cpu", "filelock": "4.0"})
    (launched.folder / "home/guard/policy.json").write_text(json.dumps(held.document()))
    log += "Would install 3 packages\n + app==1.0\n + setuptools==60.0\n + sympy==1.5\n"
    done = launched.run(*arguments, FAKE_LOG=log)
    assert (done.returncode, launched.calls()) == (1, [])
    first, keep, relax = done.stderr.splitlines()
    assert first == (
        f"warpfront guard: {who} wants sympy==1.5; this image's torch 2.13.0+cpu needs"
        " sympy>=1.13.3."
    )
    assert keep.startswith("warpfront guard:   to keep it working: ")
    assert relax.endswith("--reason TEXT")
    if log:
        fine = log.replace("sympy==1.5", "sympy==1.14.0")
        assert launched.run("pip", "sync", "lines.txt", FAKE_LOG=fine).returncode == 0


@pytest.mark.process
def test_what_an_override_of_the_users_asks_for_is_not_told_as_a_packages(
    launched: Launched,
) -> None:
    """uv says every demand on an overridden name as the override is."""
    file = launched.folder / "newer.txt"
    file.write_text("# mine\nTorch>=2.15  # why\n-r other.txt\n", encoding="utf-8")
    done = launched.run("pip", "install", "overridden", "--override", str(file))
    said = done.stderr.partition("warpfront guard: ")[2]
    assert said.startswith(f"the command wants Torch>=2.15 ({file}); this image holds torch")
    plain = launched.run("pip", "install", "overridden")
    assert "warpfront guard: app 1.0 wants torch>=2.15; this image" in plain.stderr
    ways: list[tuple[list[str], dict[str, str]]] = [
        ([f"--overrides={file}"], {}),
        ([], {"UV_OVERRIDE": f"/nowhere {file}"}),
    ]
    for arguments, environment in ways:
        found = overrides_of(arguments, environment)
        assert found == {"torch": f"Torch>=2.15 ({file})"}


def test_an_override_that_is_the_images_own_is_nobodys_demand(tmp_path: Path) -> None:
    ours = tmp_path / "overrides.txt"
    ours.write_text("torch==2.13.0+cpu\n", encoding="utf-8")
    overrides = overrides_of(["--override", str(ours), "--override"], {})
    assert list(overrides) == ["torch"]
    said = "Because app==1.0 depends on torch==2.13.0+cpu and torch==2.13.0+cpu, we can conclude"
    assert "wants" not in explanation(said, cpu_policy(), overrides)
