"""The watch over imports, start by start, in real interpreters with a real sealed stack."""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from guarded import (
    TORCH,
    GuardedPython,
    a_guarded_python,
    an_unguarded_python,
    cpu_policy,
    install,
    make_environment,
)

from warpfront_checks.guard.sealing import seal

pytestmark = pytest.mark.process


SAY = "import torch; print(torch.__version__)"
# Whatever else it says, it does so before anything of torch has run.
REFUSED = "ImportError: warpfront guard: torch: the torch stack of this image (torch 2.13.0+cpu)"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> GuardedPython:
    """For tests that change nothing in it."""
    return a_guarded_python(tmp_path_factory.mktemp("sealed"))


@pytest.fixture
def own(tmp_path: Path) -> GuardedPython:
    """For tests that break it."""
    return a_guarded_python(tmp_path)


def swept(*cases: object) -> list[object]:
    """Cases that differ from those beside them in nothing that the watch looks at."""
    return [pytest.param(case, marks=pytest.mark.exhaustive) for case in cases]


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0
    assert REFUSED in done.stderr
    return done.stderr.splitlines()[-1]


def fine(done: subprocess.CompletedProcess[str]) -> str:
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def shadow_in(folder: Path) -> Path:
    install(folder, "torch", "2.15.0", {**TORCH, "torch/version.py": "__version__ = '2.15.0'\n"})
    return folder


def test_a_sealed_torch_is_imported_without_a_word(sealed: GuardedPython) -> None:
    assert fine(sealed.run("-c", SAY)) == "2.13.0+cpu"


@pytest.mark.parametrize(
    "switch", ["-I", "-O", "-Werror", "-v", *swept("-E", "-s", "-B", "-Xutf8")]
)
def test_every_way_to_start_python_imports_a_sealed_torch(
    sealed: GuardedPython, switch: str
) -> None:
    done = sealed.run(switch, "-c", SAY)
    assert (done.returncode, done.stdout.strip()) == (0, "2.13.0+cpu")


@pytest.mark.parametrize("switch", ["-I", "-O", *swept("-E", "-s", "-Werror")])
def test_every_way_to_start_python_refuses_a_changed_torch(own: GuardedPython, switch: str) -> None:
    (own.places.site_packages / "torch/version.py").write_text("__version__ = '2.15.0'\n")
    assert "torch/version.py: 23 bytes instead of 50" in refusal(own.run(switch, "-c", SAY))


def test_without_site_there_is_no_watch(own: GuardedPython) -> None:
    """`-S` reads no .pth: known, and named in docs/guard.md. `verify` still sees the change."""
    (own.places.site_packages / "torch/version.py").write_text("__version__ = '2.15.0'\n")
    done = own.run("-S", "-c", SAY, environment={"PYTHONPATH": str(own.places.site_packages)})
    assert done.stdout.strip() == "2.15.0"
    assert own.guard("verify").returncode == 1


def test_a_shadow_on_pythonpath_is_named(sealed: GuardedPython, tmp_path: Path) -> None:
    place = shadow_in(tmp_path / "shadow")
    done = sealed.run("-c", SAY, environment={"PYTHONPATH": str(place)})
    assert f"torch would come from {place}/torch/__init__.py" in refusal(done)


def test_a_folder_called_torch_in_the_working_directory_is_named(
    sealed: GuardedPython, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    program = f"import os, sys; os.chdir({str(tmp_path)!r}); {SAY}"
    assert f"torch would come from {tmp_path}/torch" in refusal(sealed.run("-c", program))


def test_a_user_site_is_left_out_and_named_where_it_is_let_in(
    sealed: GuardedPython, tmp_path: Path
) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = shadow_in(tmp_path / "lib" / version / "site-packages")
    program = f"import sys; sys.path.insert(0, {str(place)!r}); {SAY}"
    assert fine(sealed.run("-c", SAY, environment={"PYTHONUSERBASE": str(tmp_path)}))
    assert f"torch would come from {place}" in refusal(sealed.run("-c", program))


def overlay(sealed: GuardedPython, folder: Path) -> Path:
    """An environment over the sealed one, as `--system-site-packages` makes over a system's; that
    option looks through to the first Python, so a .pth takes its place here.
    """
    packages = make_environment(folder)
    (packages / "parent.pth").write_text(
        f"import site; site.addsitedir({str(sealed.places.site_packages)!r})\n"
    )
    return folder / "bin" / "python"


def test_an_environment_over_the_sealed_one_sees_its_torch(
    sealed: GuardedPython, tmp_path: Path
) -> None:
    assert fine(sealed.run("-c", SAY, python=overlay(sealed, tmp_path / "over"))) == "2.13.0+cpu"


def test_a_torch_in_an_environment_over_the_sealed_one_is_named(
    sealed: GuardedPython, tmp_path: Path
) -> None:
    python = overlay(sealed, tmp_path / "over")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = shadow_in(tmp_path / "over" / "lib" / version / "site-packages")
    done = sealed.run("-c", SAY, python=python)
    assert f"torch would come from {place}/torch/__init__.py" in refusal(done)


def test_a_removed_package_is_named(own: GuardedPython) -> None:
    shutil.rmtree(own.places.site_packages / "torch")
    assert f"torch was removed from {own.places.site_packages}" in refusal(own.run("-c", SAY))


def test_a_package_of_which_only_folders_are_left_is_named(own: GuardedPython) -> None:
    (own.places.site_packages / "torch/__init__.py").unlink()
    assert "torch would come from" in refusal(own.run("-c", SAY))


def test_an_install_over_it_is_named(own: GuardedPython) -> None:
    install(own.places.site_packages, "torch", "2.15.0", {"torch/version.py": "__version__ = 1\n"})
    line = refusal(own.run("-c", SAY))
    assert "torch 2.15.0 was installed over it; torch/version.py: 16 bytes instead of 50" in line
    assert "warpfront-guard verify" in line


def test_many_changes_are_counted(own: GuardedPython) -> None:
    for path in ("torch/__init__.py", "torch/version.py", "torch/nn/__init__.py"):
        (own.places.site_packages / path).write_text("# longer than whatever was there before " * 9)
    (own.places.site_packages / "torch/lib/libtorch.so").unlink()
    assert "and 1 more files" in refusal(own.run("-c", SAY))


def test_a_changed_torch_is_named_when_its_companion_is_imported(own: GuardedPython) -> None:
    (own.places.site_packages / "torch/version.py").write_text("")
    done = own.run("-c", "import torchvision")
    assert "ImportError: warpfront guard: torchvision: the torch stack" in done.stderr


def test_a_companion_of_another_torch_is_named(own: GuardedPython) -> None:
    files = {"torchaudio/__init__.py": ""}
    install(own.places.site_packages, "torchaudio", "2.11.0", dict(files))
    done = own.run("-c", "import torchaudio")
    assert "torchaudio 2.11.0 was installed; with torch 2.13.0+cpu goes 2.11.0+cpu" in done.stderr
    assert fine(own.run("-c", SAY)) == "2.13.0+cpu"


def test_the_companion_that_fits_is_imported(own: GuardedPython) -> None:
    files = {"torchaudio/__init__.py": "print('audio')\n"}
    install(own.places.site_packages, "torchaudio", "2.11.0+cpu", dict(files))
    assert fine(own.run("-c", "import torchaudio")) == "audio"


def test_without_its_pth_torch_is_imported_and_verify_says_what_is_gone(
    own: GuardedPython,
) -> None:
    own.places.pth.unlink()
    assert fine(own.run("-c", SAY)) == "2.13.0+cpu"
    done = own.guard("verify")
    assert done.returncode == 1
    assert f"channel: {own.places.pth}: missing" in done.stdout
    assert "the watch is not in it" in done.stdout


def test_without_its_library_every_start_says_so_and_python_goes_on(own: GuardedPython) -> None:
    shutil.rmtree(own.places.library)
    done = own.run("-c", SAY)
    assert (done.returncode, done.stdout.strip()) == (0, "2.13.0+cpu")
    [line] = set(done.stderr.splitlines())
    assert line.startswith("warpfront guard: torch is not watched: No module named")


@pytest.mark.parametrize("name", ["watch.py", "manifest.py", "policy.py"])
def test_a_guard_that_lost_a_part_of_itself_refuses_torch_and_nothing_else(
    own: GuardedPython, name: str
) -> None:
    library = own.places.library / "warpfront_guard"
    shutil.rmtree(library / "__pycache__", ignore_errors=True)
    (library / name).unlink()
    assert fine(own.run("-c", "import json; print(1)")) == "1"
    done = own.run("-c", SAY)
    assert "ImportError: warpfront guard: torch: the guard in" in done.stderr


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}'])
def test_a_damaged_manifest_is_named(own: GuardedPython, text: str) -> None:
    own.places.manifest.write_text(text)
    done = own.run("-c", SAY)
    assert "ImportError: warpfront guard: torch: the torch stack of this image" in done.stderr
    assert f"{own.places.manifest}: not a manifest" in done.stderr


def test_a_relaxed_torch_may_be_anything(own: GuardedPython) -> None:
    assert own.guard("relax", "torch", "--reason", "we bring our own").returncode == 0
    (own.places.site_packages / "torch/version.py").write_text("__version__ = 'ours'\n")
    assert fine(own.run("-c", SAY)) == "ours"


def test_who_only_asks_is_answered_and_who_imports_is_refused(own: GuardedPython) -> None:
    """Many packages probe for torch before they use it, and expect no exception of that."""
    (own.places.site_packages / "torch/version.py").write_text("")
    program = """
import importlib.util
spec = importlib.util.find_spec("torch")
print(spec.name, spec.origin, list(spec.submodule_search_locations))
try:
    import torch
except ImportError as error:
    print(error.name, str(error)[:16])
"""
    package = own.places.site_packages / "torch"
    done = own.run("-c", program)
    assert done.stdout.splitlines() == [
        f"torch {package / '__init__.py'} {[str(package)]}",
        "torch warpfront guard:",
    ]
    assert "warpfront guard: torch is not imported: it was changed" in done.stderr


def test_who_asks_for_a_removed_torch_is_not_told_that_there_never_was_one(
    own: GuardedPython,
) -> None:
    shutil.rmtree(own.places.site_packages / "torch")
    program = "import importlib.util as u; print(u.find_spec('torch') is not None); import torch"
    done = own.run("-c", program)
    assert done.stdout.strip() == "True"
    assert "torch was removed from" in refusal(done)


def test_a_refusal_that_a_program_swallows_is_still_said(own: GuardedPython) -> None:
    (own.places.site_packages / "torch/version.py").write_text("")
    program = "try:\n    import torch\nexcept ImportError:\n    print('no torch here')"
    done = own.run("-c", program)
    assert done.stdout.strip() == "no torch here"
    assert done.stderr == "warpfront guard: torch is not imported: it was changed\n"


def test_a_refusal_without_stderr_is_an_import_error_all_the_same(own: GuardedPython) -> None:
    (own.places.site_packages / "torch/version.py").write_text("")
    program = """
import sys
sys.stderr = None
try:
    import torch
except ImportError as error:
    print(str(error)[:23])
"""
    assert own.run("-c", program).stdout.strip() == "warpfront guard: torch:"


def test_reload_looks_again(own: GuardedPython) -> None:
    version = own.places.site_packages / "torch/version.py"
    program = f"""
import importlib, torch
importlib.reload(torch)
open({str(version)!r}, "w").write("__version__ = 1")
importlib.reload(torch)
"""
    assert "torch/version.py: 15 bytes instead of 50" in refusal(own.run("-c", program))


def test_a_second_try_is_refused_as_the_first_was(own: GuardedPython) -> None:
    (own.places.site_packages / "torch/version.py").write_text("")
    program = """
import sys
for _ in range(2):
    try:
        import torch
    except ImportError as error:
        print(str(error)[:23], "torch" in sys.modules)
"""
    lines = own.run("-c", program).stdout.splitlines()
    assert lines == ["warpfront guard: torch: False"] * 2


def test_a_module_of_torch_run_as_a_program_is_refused_in_the_guards_words(
    own: GuardedPython,
) -> None:
    (own.places.site_packages / "torch/version.py").write_text("")
    done = own.run("-m", "torch.nn")
    assert done.returncode != 0
    assert "warpfront guard: torch: the torch stack of this image" in done.stderr


def test_many_threads_import_one_torch(sealed: GuardedPython) -> None:
    """A watch that took its time while Python holds its lock for finding modules would have
    `torch.version` and `torch` wait for each other.
    """
    program = """
import threading
errors = []
def work(name):
    try:
        __import__(name)
    except BaseException as error:
        errors.append(error)
names = ["torch", "torchvision", "torch.nn", "torch.version", "json"] * 8
threads = [threading.Thread(target=work, args=(name,)) for name in names]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(errors)
"""
    assert fine(sealed.run("-c", program)) == "[]"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_worker_process_imports_torch_as_its_parent_does(
    sealed: GuardedPython, tmp_path: Path, method: str
) -> None:
    """As DataLoader's workers do."""
    program = tmp_path / "loader.py"
    program.write_text(f"""
import multiprocessing

def load(index):
    import torch, torchvision
    return torch.__version__

if __name__ == "__main__":
    with multiprocessing.get_context({method!r}).Pool(2) as pool:
        print(pool.map(load, range(4)))
""")
    done = sealed.run("-Wignore", str(program))
    assert fine(done) == str(["2.13.0+cpu"] * 4)


def test_a_worker_of_a_changed_stack_is_refused_in_the_parents_words(
    own: GuardedPython, tmp_path: Path
) -> None:
    (own.places.site_packages / "torch/version.py").write_text("")
    program = tmp_path / "loader.py"
    program.write_text("""
import multiprocessing

def load(index):
    import torch

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(load, range(1))
""")
    assert "warpfront guard: torch: the torch stack" in own.run(str(program)).stderr


NAMES = ["PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_BUILD_CONSTRAINT"]
SHOW = f"import os; print(*(os.environ.get(name) for name in {NAMES!r}), sep='|')"


def expected(sealed: GuardedPython, before: str = "") -> str:
    constraints, overrides = sealed.places.constraints, sealed.places.overrides
    pips = f"{constraints} {sealed.places.needs}"
    return "|".join(f"{before}{path}" for path in (pips, constraints, overrides))


def test_a_cleared_environment_gets_its_channels_back(sealed: GuardedPython) -> None:
    """`env -i python ...`, sudo, cron."""
    done = subprocess.run(
        [sealed.python, "-c", SHOW], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected(sealed)


@pytest.mark.parametrize("switch", ["-I", "-E"])
def test_an_isolated_start_gets_its_channels_back(sealed: GuardedPython, switch: str) -> None:
    done = sealed.run(switch, "-c", SHOW, environment=dict.fromkeys(NAMES, ""))
    assert fine(done) == expected(sealed)


def test_a_replaced_channel_is_added_to(sealed: GuardedPython) -> None:
    done = sealed.run("-c", SHOW, environment=dict.fromkeys(NAMES, "/mine.txt"))
    assert fine(done) == expected(sealed, "/mine.txt ")


def test_a_channel_that_is_right_is_left_alone(sealed: GuardedPython) -> None:
    given = f"{sealed.places.constraints} /mine.txt {sealed.places.needs}"
    done = sealed.run("-c", SHOW, environment={"PIP_CONSTRAINT": given})
    assert fine(done).split("|")[0] == given


def test_verify_tells_a_channel_that_was_put_back_from_one_that_was_set(
    sealed: GuardedPython,
) -> None:
    done = sealed.program("verify", PIP_CONSTRAINT="/mine.txt")
    assert f"channel: PIP_CONSTRAINT: not set to {sealed.places.constraints}" in done.stdout


def test_a_guard_without_constraints_names_none(own: GuardedPython) -> None:
    """pip stops at a constraint file that is not there."""
    own.places.constraints.unlink()
    own.places.needs.unlink()
    done = own.run("-c", SHOW, environment=dict.fromkeys(NAMES, ""))
    assert fine(done) == f"None|None|{own.places.overrides}"


def test_an_isolated_build_with_another_torch_is_told_of_no_build_isolation(
    sealed: GuardedPython, tmp_path: Path
) -> None:
    """pip builds with a folder of its own before everything else on the path."""
    place = shadow_in(tmp_path / "pip-build-env-x1y2" / "overlay" / "lib" / "site-packages")
    done = sealed.run("-c", SAY, environment={"PYTHONPATH": str(place)})
    line = refusal(done)
    assert "this isolated build has torch 2.15.0, the image's is 2.13.0+cpu" in line
    assert "--no-build-isolation" in line


def test_an_isolated_build_with_the_same_torch_is_let_be(
    sealed: GuardedPython, tmp_path: Path
) -> None:
    place = tmp_path / "pip-build-env-x1y2" / "overlay" / "lib" / "site-packages"
    install(place, "torch", "2.13.0+cpu", TORCH)
    assert fine(sealed.run("-c", SAY, environment={"PYTHONPATH": str(place)})) == "2.13.0+cpu"


def test_an_isolated_build_runs_the_libraries_of_its_own_torch(tmp_path: Path) -> None:
    """The image's own cannot be loaded here, so that its own import is refused."""
    files = {**TORCH, "torch/lib/libc10.so": b"\x7fELF stand-in"}
    image = an_unguarded_python(tmp_path)
    install(image.places.site_packages, "torch", "2.13.0+cpu", files)
    seal(cpu_policy(), image.places, python=str(image.python))
    assert "libc10.so is not what was loaded" in image.run("-c", SAY).stderr
    place = tmp_path / "pip-build-env-x1y2" / "overlay" / "lib" / "site-packages"
    install(place, "torch", "2.13.0+cpu", files)
    assert fine(image.run("-c", SAY, environment={"PYTHONPATH": str(place)})) == "2.13.0+cpu"


def test_a_program_that_clears_the_finders_breaks_itself_alone(sealed: GuardedPython) -> None:
    program = "import sys; sys.meta_path.clear(); print(1)"
    assert fine(sealed.run("-c", program)) == "1"


def test_other_import_hooks_go_on_working(sealed: GuardedPython) -> None:
    """pytest's rewriting of assertions stands in front of the watch, and answers for its tests."""
    program = f"""
import sys
class Hook:
    @staticmethod
    def find_spec(name, path=None, target=None):
        asked.append(name)
asked = []
sys.meta_path.insert(0, Hook())
{SAY}
print("torch" in asked)
"""
    assert fine(sealed.run("-c", program)).split() == ["2.13.0+cpu", "True"]


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/nonexistent"},
        {"PYTHONSAFEPATH": "1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "error"},
        *swept(
            {"HOME": ""},
            {"PYTHONHASHSEED": "0"},
            {"PYTHONDONTWRITEBYTECODE": "1"},
            {"PYTHONWARNINGS": "error"},
        ),
    ],
    ids=str,
)
def test_a_strange_environment_changes_nothing(
    sealed: GuardedPython, environment: dict[str, str]
) -> None:
    assert fine(sealed.run("-c", SAY, environment=environment)) == "2.13.0+cpu"


def test_the_start_up_module_loads_little_more_than_os_and_sys(sealed: GuardedPython) -> None:
    program = "import sys; print(sorted(sys.modules))"
    watched = eval(fine(sealed.run("-c", program)))
    sealed_pth = sealed.places.pth.read_text()

    def loaded(*argv: str) -> set[str]:
        command = [*argv, "import site, sys; print(sorted(sys.modules))"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return set(eval(done.stdout))

    # Debian's Python has a sitecustomize of its own.
    of_distribution = loaded(sys._base_executable, "-I", "-c") & {"sitecustomize"}  # type: ignore[attr-defined]
    bare = loaded(sys.executable, "-I", "-S", "-c") | of_distribution
    assert "warpfront_guard.startup" in sealed_pth
    more = {name for name in set(watched) - set(bare) if not name.startswith("encodings")}
    own = {"warpfront_guard", "warpfront_guard.startup", "warpfront_guard.user_environment"}
    assert more - {"pwd"} == own, "pwd where no variable names the user"


def test_the_watch_loads_nothing_that_torch_does_not(tmp_path: Path) -> None:
    """importlib.metadata, hashlib and concurrent.futures together cost as much as all the rest.
    Byte code is sealed, as in an image: what is newer than the seal is hashed.
    """
    sealed = an_unguarded_python(tmp_path)
    compileall.compile_dir(sealed.places.site_packages, quiet=2)
    seal(cpu_policy(), sealed.places, python=str(sealed.python))
    program = "import sys, torch; print(sorted(sys.modules))"
    loaded = set(eval(fine(sealed.run("-c", program))))
    assert not loaded & {"importlib.metadata", "hashlib", "concurrent.futures", "subprocess"}


def test_a_policy_may_leave_a_watched_package_alone(tmp_path: Path) -> None:
    own = a_guarded_python(tmp_path, cpu_policy(companions={}))
    files = {"triton/__init__.py": "print('triton')\n"}
    install(own.places.site_packages, "triton", "3.9.0", dict(files))
    assert fine(own.run("-c", "import triton")) == "triton"
