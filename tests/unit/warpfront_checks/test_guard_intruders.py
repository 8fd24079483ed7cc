"""Code of others that would run as torch: native libraries, plugins, modules below it. Each fault
is put into a real interpreter with a real sealed stack.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from guarded import TORCH, GuardedPython, a_guarded_python, cpu_policy, install
from stand_in_torch import extension_module

from warpfront_checks.guard import watch
from warpfront_checks.guard.at_import import libraries
from warpfront_checks.guard.fast_path import mapped
from warpfront_checks.guard.intruders import shadow_words, shadows
from warpfront_checks.guard.manifest import Manifest
from warpfront_checks.guard.sealing import seal

pytestmark = pytest.mark.process

SAY = "import torch.nn; print(torch.__version__, torch.nn.__dict__.get('whose', 'ours'))"
LIBC10 = "torch/lib/libc10.so"


@pytest.fixture
def own(tmp_path: Path) -> GuardedPython:
    return a_guarded_python(tmp_path)


def put(own: GuardedPython, files: Mapping[str, str], *, pth: str = "") -> None:
    """A package as somebody installs it; `pth` is run at every start of Python."""
    extra = {"zz_intruder.pth": f"import sys; {pth}\n"} if pth else {}
    install(own.places.site_packages, "an-intruder", "1.0", {**files, **extra})


def refused(own: GuardedPython, program: str = SAY, **environment: str) -> str:
    done = own.run("-c", program, environment=environment)
    assert done.returncode != 0, done.stdout
    return done.stderr.splitlines()[-1]


def found(own: GuardedPython, **environment: str) -> str:
    done = own.guard("verify", **environment)
    assert done.returncode == 1
    return done.stdout


# -- Native libraries

A_MANIFEST = Manifest(
    location=Path("/image/site"),
    versions={"torch": "2.13.0+cpu", "nvidia-cublas": "13.0"},
    files={
        "torch": {LIBC10: (1, ""), "torch/_C.cpython-311.so": (1, ""), "torch/lib/x.h": (1, "")},
        "nvidia-cublas": {"nvidia/cu13/lib/libcublas.so.13": (1, "")},
    },
)
SEALED = libraries(A_MANIFEST, "/image/site")
OURS = "/image/site/torch/lib/libc10.so"


def test_the_libraries_that_a_loader_looks_for_by_name_are_known() -> None:
    assert SEALED == {
        "libc10.so": [OURS],
        "libcublas.so.13": ["/image/site/nvidia/cu13/lib/libcublas.so.13"],
    }


def test_triton_without_torch_loads_nothing_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_libraries", SEALED)
    monkeypatch.setattr(watch, "_shadowed", {})
    monkeypatch.setattr(watch, "mapped", list)
    monkeypatch.delitem(sys.modules, "torch._C", raising=False)
    watch.look_after("triton", home="")
    with pytest.raises(ImportError, match=r"libc10\.so is not what was loaded"):
        watch.look_after("torch", home="")
    monkeypatch.setattr(watch, "mapped", lambda: ["/elsewhere/libcublas.so.13"])
    with pytest.raises(ImportError, match=r"/elsewhere/libcublas\.so\.13 is loaded in the place"):
        watch.look_after("triton", home="")


@pytest.mark.parametrize(
    ("loaded", "other"),
    [
        ([OURS], None),
        ([OURS, "/lib/libc.so.6", "/elsewhere/_C.cpython-311.so"], None),
        (["/opt/libtorch/lib/libc10.so"], "/opt/libtorch/lib/libc10.so"),
        ([OURS, "/usr/local/cuda/lib64/libcublas.so.13"], "/usr/local/cuda/lib64/libcublas.so.13"),
        (["/lib/libc.so.6"], ""),
    ],
)
def test_a_library_of_the_stacks_names_from_elsewhere_is_a_shadow(
    loaded: list[str], other: str | None
) -> None:
    found = [words.split(" ")[0] for _, words in shadows(SEALED, loaded, {})]
    assert found == ([] if other is None else [other or OURS])


def test_a_library_that_is_named_by_its_content_is_the_same_one_in_every_wheel() -> None:
    name = "libgomp-a34b3233.so.1.0.0"
    sealed = {name: [f"/image/site/torch.libs/{name}"]}
    assert list(shadows(sealed, [f"/image/site/scikit_learn.libs/{name}"], {})) == []
    assert list(shadows(sealed, [f"/opt/evil/{name}"], {})) != []


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"LD_LIBRARY_PATH": "/a:/opt/libtorch/lib/"}, "LD_LIBRARY_PATH has /opt/libtorch/lib/"),
        ({"LD_PRELOAD": "/x.so:/opt/libtorch/lib/libc10.so"}, "LD_PRELOAD names it"),
        ({"LD_LIBRARY_PATH": "/a"}, "by an RPATH"),
        ({}, "by an RPATH"),
    ],
)
def test_what_brought_a_shadow_is_named(environment: dict[str, str], why: str) -> None:
    words = shadow_words(OURS, "/opt/libtorch/lib/libc10.so", environment)
    assert why in words
    assert OURS in words


def test_this_process_has_mapped_its_loader_and_its_libc() -> None:
    assert any("/ld-" in path for path in mapped())
    assert not any(path.startswith("[") for path in mapped())


@pytest.fixture
def native(tmp_path: Path) -> GuardedPython:
    """A torch that loads a real library of its own, by its name, as compiled ones do; beside it a
    torchvision that, as triton, imports no torch.
    """
    from guarded import an_unguarded_python

    guarded = an_unguarded_python(tmp_path)
    loading = "import ctypes; ctypes.CDLL('libc10.so')\nfrom torch.version import __version__\n"
    files = {**TORCH, "torch/__init__.py": loading, LIBC10: extension_module("c10")}
    packages = guarded.places.site_packages
    for name, changed in (("torch", files), ("torchvision", {"torchvision/__init__.py": ""})):
        (metadata,) = packages.glob(f"{name}-*.dist-info")
        shutil.rmtree(metadata)
        install(packages, name, metadata.name[len(name) + 1 : -len(".dist-info")], changed)
    seal(cpu_policy(), guarded.places, python=str(guarded.python))
    return guarded


def test_the_images_own_library_is_loaded_without_a_word(native: GuardedPython) -> None:
    lib = native.places.site_packages / "torch/lib"
    for program in ("import torch", "import torchvision", "import torchvision, torch"):
        done = native.run("-c", program, environment={"LD_LIBRARY_PATH": str(lib)})
        assert (program, done.returncode, done.stderr) == (program, 0, "")


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
def test_a_library_from_elsewhere_is_refused_with_the_variable(
    native: GuardedPython, tmp_path: Path, variable: str
) -> None:
    other = tmp_path / "libtorch" / "libc10.so"
    other.parent.mkdir()
    other.write_bytes(extension_module("c10"))
    value = str(other.parent if variable == "LD_LIBRARY_PATH" else other)
    sealed = native.places.site_packages / "torch/lib"
    path = f"{value}:{sealed}" if variable == "LD_LIBRARY_PATH" else str(sealed)
    text = refused(native, "import torch", **{"LD_LIBRARY_PATH": path, variable: value})
    assert f"runs other code: {other} is loaded in the place of" in text
    assert variable in text
    assert "Start Python without that library to have it back" in text


def test_what_was_refused_after_it_ran_is_not_run_twice(
    native: GuardedPython, tmp_path: Path
) -> None:
    other = tmp_path / "libtorch" / "libc10.so"
    other.parent.mkdir()
    other.write_bytes(extension_module("c10"))
    program = (
        "for _ in 1, 2:\n try: import torch\n except ImportError as error: print(str(error)[:60])\n"
    )
    done = native.run("-c", program, environment={"LD_LIBRARY_PATH": str(other.parent)})
    assert done.stdout.count("warpfront guard: torch: the torch stack of this image runs") == 2


# -- Plugins


def test_a_plugin_that_an_import_loads_is_refused_and_found(own: GuardedPython) -> None:
    entry = "[console_scripts]\nx = y:z\n\n[torch.backends]\nmine = an_intruder:load\n"
    put(own, {"an_intruder-1.0.dist-info/entry_points.txt": entry})
    assert "an-intruder has it load its own code (torch.backends in " in refused(own)
    assert f"plugin: an-intruder: torch.backends in {own.places.site_packages}" in found(own)


def test_a_plugin_that_is_meant_is_relaxed_as_the_refusal_says(own: GuardedPython) -> None:
    put(own, {"an_intruder-1.0.dist-info/entry_points.txt": "[torch.backends]\nmine = x:y\n"})
    advice = refused(own).partition("if that is meant, `warpfront-guard ")[2].partition("`")[0]
    assert own.guard(*advice.split()).returncode == 0
    assert own.run("-c", SAY).returncode == 0
    assert own.guard("verify").returncode == 0


def test_a_plugin_that_torch_was_told_not_to_load_is_found_by_verify_alone(
    own: GuardedPython,
) -> None:
    put(own, {"an_intruder-1.0.dist-info/entry_points.txt": "[torch.backends]\nmine = x:y\n"})
    done = own.run("-c", SAY, environment={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert done.returncode == 0
    assert "plugin: an-intruder: torch.backends" in found(own)


def test_a_plugin_elsewhere_on_the_path_is_refused_too(own: GuardedPython, tmp_path: Path) -> None:
    place = tmp_path / "more"
    entry = {"an_intruder-1.0.dist-info/entry_points.txt": "[torch.backends]\nmine = x:y\n"}
    install(place, "an-intruder", "1.0", entry)
    assert "an-intruder has it load its own code" in refused(own, PYTHONPATH=str(place))


def test_entry_points_of_other_groups_are_nobodys_business(own: GuardedPython) -> None:
    entry = "[torch_dynamo_backends]\nmine = x:y\n[console_scripts]\ntorch.backends = x:y\n"
    put(own, {"an_intruder-1.0.dist-info/entry_points.txt": entry})
    assert own.run("-c", SAY).returncode == 0
    assert own.guard("verify").returncode == 0


# -- Modules below torch

A_FINDER = """
import importlib.machinery as machinery, importlib.util as util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch.nn":
            return util.spec_from_file_location(name, ORIGIN, LOADER)

def put():
    sys.meta_path.insert(1, Finder)  # an image's sitecustomize puts the watch first again
"""
OTHER_FILE = "loader=None"
A_LOADER = """loader=type("Loader", (machinery.SourceFileLoader,), {
    "get_code": lambda self, name: compile("whose = 'theirs'", "x", "exec")})("torch.nn", ORIGIN)"""


def put_finder(own: GuardedPython, origin: Path, loader: str) -> None:
    origin.parent.mkdir(exist_ok=True)
    if not origin.exists():
        origin.write_text("whose = 'theirs'\n")
    text = A_FINDER.replace("LOADER", loader).replace("ORIGIN", repr(str(origin)))
    put(own, {"intruder_finder.py": text}, pth="import intruder_finder; intruder_finder.put()")


def test_a_finder_that_gives_another_file_for_a_module_of_torch_is_refused_and_found(
    own: GuardedPython, tmp_path: Path
) -> None:
    origin = tmp_path / "theirs" / "nn.py"
    put_finder(own, origin, OTHER_FILE)
    assert f"torch.nn would come from {origin}" in refused(own)
    assert "import: intruder_finder.Finder: it " in found(own)


def test_a_folder_of_the_stack_without_an_init_is_imported_and_one_from_elsewhere_is_not(
    own: GuardedPython, tmp_path: Path
) -> None:
    """triton/_C is one: it holds the library alone."""
    files = {**TORCH, "torch/bare/inner.py": "print('imported')\n"}
    install(own.places.site_packages, "torch", "2.13.0+cpu", files)
    seal(cpu_policy(), own.places, python=str(own.python))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "inner.py").write_text("")
    done = own.run("-c", "import torch.bare.inner")
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported\n", "")
    program = f"import torch; torch.__path__.append({str(tmp_path)!r}); import torch.other.inner"
    assert f"torch.other would come from {tmp_path / 'other'}" in refused(own, program)


def test_a_loader_of_somebodys_for_a_module_of_torch_is_said_and_found(own: GuardedPython) -> None:
    put_finder(own, own.places.site_packages / "torch/nn/__init__.py", A_LOADER)
    done = own.run("-c", SAY)
    assert "torch.nn is loaded by intruder_finder.Loader, not by Python's own" in done.stderr
    assert "import: intruder_finder.Finder: it " in found(own)


def test_a_path_hook_for_the_stacks_folders_is_found(own: GuardedPython) -> None:
    hook = "def hook(path):\n    if 'torch' in path: return object()\n    raise ImportError\n"
    put(
        own,
        {"intruder_hook.py": hook},
        pth="import intruder_hook; sys.path_hooks.insert(0, intruder_hook.hook)",
    )
    assert "import: intruder_hook.hook: it answers for " in found(own)


def test_a_module_that_is_there_before_torch_is_refused_and_found(own: GuardedPython) -> None:
    preload = "import types; sys.modules['torch.nn'] = types.ModuleType('torch.nn')"
    put(own, {}, pth=preload)
    assert "torch.nn was in sys.modules before torch was" in refused(own)
    assert "import: torch.nn: it is in sys.modules when Python starts" in found(own)


def test_an_import_of_somebodys_own_making_is_found(own: GuardedPython) -> None:
    wrap = "import builtins\nreal = builtins.__import__\ndef mine(*a, **k): return real(*a, **k)\n"
    pth = "import intruder as i, builtins; builtins.__import__ = i.mine"
    put(own, {"intruder.py": wrap}, pth=pth)
    assert "import: builtins.__import__: it was replaced" in found(own)


@pytest.mark.parametrize(
    "program",
    [
        "import importlib.util as u; assert u.find_spec('torch.nn').origin; import torch.nn",
        "import importlib.util as u; assert u.find_spec('torch.absent') is None",
        "import torch; import importlib; importlib.reload(torch); import torch.nn",
        "import sys, torch.nn; del sys.modules['torch']; import torch.nn",
    ],
)
def test_what_torchs_own_modules_are_asked_is_answered_without_a_word(
    own: GuardedPython, program: str
) -> None:
    done = own.run("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_finder_that_looks_at_every_import_and_answers_for_none_is_no_finding(
    own: GuardedPython,
) -> None:
    """setuptools, coverage and editable installs put such ones there."""
    text = A_FINDER.replace("torch.nn", "nothing").replace("LOADER", "None").replace("ORIGIN", "''")
    put(own, {"intruder_finder.py": text}, pth="sys.meta_path.append(0); sys.meta_path.pop()")
    (own.places.site_packages / "b_looks.pth").write_text("import intruder_finder as i; i.put()\n")
    done = own.run("-c", SAY)
    assert (done.returncode, done.stderr) == (0, "")


# -- Needs, at the import


def test_what_torch_cannot_work_with_is_said_at_its_import(own: GuardedPython) -> None:
    policy = own.places.policy
    policy.write_text(policy.read_text().replace('"needs": {}', '"needs": {"sympy": ">=1.13.3"}'))
    install(own.places.site_packages, "sympy", "1.5", {})
    done = own.run("-c", SAY)
    assert (done.returncode, done.stderr) == (
        0,
        "warpfront guard: sympy 1.5 was installed; torch 2.13.0+cpu needs sympy>=1.13.3\n",
    )


def test_of_two_versions_in_one_folder_the_one_that_torch_cannot_work_with_counts(
    own: GuardedPython,
) -> None:
    """conda writes over what pip installed and leaves its metadata: which one a folder lists first
    is chance, and so many names are there as make it both.
    """
    names = [f"need{number}" for number in range(12)]
    policy = own.places.policy
    needs = json.dumps(dict.fromkeys(names, ">=1.13.3"))
    policy.write_text(policy.read_text().replace('"needs": {}', f'"needs": {needs}'))
    for name in names:
        install(own.places.site_packages, name, "1.14.0", {})
        install(own.places.site_packages, name, "1.5", {})
    (own.places.site_packages / "need0-1.5.dist-info").rename(
        own.places.site_packages / "need0-1.5-py3.11.egg-info"
    )
    said = own.run("-c", SAY).stderr.splitlines()
    assert sorted(line.split()[2] for line in said) == sorted(names)
    assert all("1.5 was installed" in line for line in said)
