"""A resolver that goes back for the stack's sake: which release, what it wanted, and how far."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from guarded import a_guarded_python, cpu_policy
from standins import stand_in_wheel

from warpfront_checks.guard.going_back import Releases, goes_with
from warpfront_checks.guard.policy import Policy
from warpfront_checks.guard.refusal import explanation, going_back, stopped


@pytest.mark.parametrize(
    ("line", "goes"),
    [
        ("torch", True),
        ("torch==2.13.0", True),
        ("torch>=2.15", False),
        ("torch>=2.15; python_version < '3'", True),
        ("torchaudio", False),  # the image lacks it, and no index but the image's has the build
        ("nvidia-cublas-cu12", False),
        ("numpy>=3", True),
        ("torch @ file:///x", True),  # a URL is refused elsewhere
    ],
)
def test_what_goes_with_the_stack(line: str, goes: bool) -> None:  # noqa: FBT001
    assert goes_with(line, cpu_policy()) is goes


def releases(policy: Policy | None = None, **wants: str) -> Releases:
    found = Releases(policy=policy or cpu_policy())
    for number, line in wants.items():
        found.add("app", number.strip("v").replace("_", "."), [line])
    return found


def test_only_what_is_newer_and_does_not_go_with_the_stack_is_passed_over() -> None:
    found = releases(v3_0="torch>=2.15", v2_0="numpy", v1_0="torch>=2.15", v0_5="torch")
    assert [one.version for one in found.gone_back("app", "2.0")] == ["3.0"]
    assert [one.version for one in found.gone_back("app", "0.5")] == ["3.0", "1.0"]
    assert going_back(found, "app", "3.0") == ""


def test_the_newest_is_named_though_it_was_not_the_first_looked_at() -> None:
    text = going_back(releases(v1_9="torch>=2.14", v1_10="torch>=2.15", v1_0="torch"), "app", "1.0")
    assert text.startswith("warpfront guard: app 1.10 wants torch>=2.15; this image holds torch")


def test_what_an_override_made_of_a_demand_is_not_said_to_be_the_packages() -> None:
    """It asked for a torchaudio; the version is this image's own."""
    text = going_back(releases(v2_0="torchaudio==2.11.0+cpu", v1_0="torch"), "app", "1.0")
    assert text.startswith("warpfront guard: app 2.0 wants torchaudio; with this image's torch")
    assert "to have it: pip install --index-url" in text


def test_three_releases_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    two = releases(v3_0="torch>=2.15", v2_0="torch>=2.15", v1_0="torch")
    assert stopped(two, "app", "1.0") == ""
    three = releases(v4_0="torch>=3", v3_0="torch>=2.15", v2_0="torch>=2.15", v1_0="torch")
    assert "stopped before it is fetched" in stopped(three, "app", "1.0")
    monkeypatch.setenv("WARPFRONT_GUARD_OLDER", "1")
    assert stopped(three, "app", "1.0") == ""


@pytest.mark.process
@pytest.mark.parametrize(("blocked", "code"), [(2, 0), (3, 1)])
def test_pip_says_that_it_goes_back_and_stops_when_it_goes_far(
    tmp_path: Path, blocked: int, code: int
) -> None:
    done = pip_install(tmp_path, blocked)
    assert done.returncode == code, done.stderr
    assert f"app {blocked + 1}.0 wants torch>=2.15; this image holds torch" in done.stderr
    assert ("stopped before it is fetched" in done.stderr) is bool(code)
    assert ("Would install app-1.0" in done.stdout) is not bool(code)
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_pip_goes_back_for_other_reasons_without_a_word_of_ours(tmp_path: Path) -> None:
    done = pip_install(tmp_path, 3, wants="six>=2")
    assert done.returncode == 0, done.stderr
    assert "warpfront guard" not in done.stderr


@pytest.mark.process
def test_a_pip_in_an_archive_is_a_pip_all_the_same(tmp_path: Path) -> None:
    """As `python -m venv` starts it for the first time, and poetry to take a package away."""
    inside = {
        "pip/__init__.py": "",
        "pip/__main__.py": "import os, sys\n"
        "sys.path.insert(0, os.path.dirname(os.path.dirname(__file__)))\n"
        "from pip._internal.resolution.resolvelib import candidates\n"
        "print(candidates.__loader__.__class__.__name__, sys.argv[1:])\n",
        "pip/_internal/__init__.py": "",
        "pip/_internal/resolution/__init__.py": "",
        "pip/_internal/resolution/resolvelib/__init__.py": "",
        "pip/_internal/resolution/resolvelib/candidates.py": "class "
        "_InstallRequirementBackedCandidate:\n    def iter_dependencies(self): ...\n",
    }
    with zipfile.ZipFile(tmp_path / "pip.whl", "w") as archive:
        for name, text in inside.items():
            archive.writestr(name, text)
    done = a_guarded_python(tmp_path).run(str(tmp_path / "pip.whl" / "pip"), "uninstall")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" ['uninstall']\n")


def pip_install(folder: Path, blocked: int, wants: str = "torch>=2.15") -> Any:
    import pip

    guarded = a_guarded_python(folder)
    offered = folder / "offered"
    stand_in_wheel(offered, "app", "1.0", requires=["torch"])
    for number in range(blocked):
        stand_in_wheel(offered, "app", f"{number + 2}.0", requires=[wants])
    source = Path(pip.__file__).parent
    (guarded.places.site_packages / "pip").symlink_to(source)
    return guarded.run(
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--no-index",
        "--find-links",
        str(offered),
        "app",
        environment={"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )


def test_a_pip_that_is_made_otherwise_is_a_pip_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from warpfront_checks.guard.startup import _with_pip

    _with_pip("watch_releases", SimpleNamespace(), "/nowhere")
    assert "refusals of pip are not explained" in capsys.readouterr().err


# -- What uv says of ranges


@pytest.mark.parametrize(
    ("said", "who"),
    [
        ("Because xgboost>=3.1.0,<=3.1.2 depends on torch>=2.15 and", "xgboost"),
        ("Because all of: vllm>=0.1,<=0.3 vllm>=3.1.2 depend on torch>=2.15 and", "vllm"),
        ("Because app==3.1.2 depends on torch>=2.15 and", "app"),
        ("and app[gpu]<=3.1.2 depends on torch>=2.15", "app"),
        ("    xgboost 3.1.2 depends on torch>=2.15", "xgboost"),
    ],
)
def test_a_version_is_never_taken_for_a_package(said: str, who: str) -> None:
    text = explanation(said, cpu_policy())
    assert f"warpfront-guard relax {who} --reason TEXT" in text
    assert "relax 3" not in text


def test_a_demand_that_the_images_torch_meets_is_not_told_to_accept_it() -> None:
    """`--target` and `--prefix` look for a second torch; no version of the package helps."""
    said = (
        "ERROR: No matching distribution\n  The conflict is caused by:\n app 1.0 depends on torch"
    )
    text = explanation(said, cpu_policy())
    assert "app 1.0 wants torch, which the image's torch 2.13.0+cpu meets" in text
    assert "accepts it" not in text
    assert "relax" not in text
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in text


def test_what_torch_needs_is_named_where_a_package_wants_another() -> None:
    policy = cpu_policy(needs={"typing-extensions": ">=4.10.0", "sympy": ">=1.13.3"})
    said = "  tensorflow 2.12 depends on typing-extensions<4.6,>=3.6\n app 1.0 depends on sympy<2\n"
    text = explanation(said, policy)
    assert "tensorflow 2.12 wants typing-extensions<4.6,>=3.6; this image's torch" in text
    assert "needs typing-extensions>=4.10.0." in text
    assert "sympy" not in text
