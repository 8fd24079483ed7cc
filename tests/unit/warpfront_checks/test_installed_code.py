"""Compiled code of an image: libraries that plug-ins need, and the numpy an extension was built
for. Packages are stand-ins; the compiled files in them are real, whole, damaged or linked here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from stacks_site import EXTENSION, OWN, WHOLE, WITHOUT_LIBRARY, Site, found

from warpfront_checks.distributions import read_installed
from warpfront_checks.stack import installed_code
from warpfront_checks.stack.elf_symbols import (
    DRIVERS,
    LoaderPaths,
    dynamic_of,
    loader_paths,
    read_dynamic,
)
from warpfront_checks.stack.installed_code import (
    added_to,
    find_lacking_libraries,
    find_other_numpy,
    other_numpy,
)

pytestmark = pytest.mark.process
PLUG_IN = "libops_providers_cuda.so"
OTHER = (
    "numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got"
    " 88 from PyObject"
)
WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-linux_x86_64\n"


def extensions(site: Site, files: dict[str, str | bytes], **entry: object) -> str:
    site.package("ops", "1.0", {"__init__.py": "", **files})
    finding = found({**OWN, **entry})["ops: extensions load"]
    return f"{finding.outcome}: {finding.reason}"


def test_what_an_entry_names_need_not_load(site: Site) -> None:
    files: dict[str, str | bytes] = {EXTENSION.name: WITHOUT_LIBRARY}
    assert extensions(site, files, optional=[EXTENSION.name]).startswith("passed")


def test_a_module_whose_import_failed_has_no_extensions_that_load(site: Site) -> None:
    said = extensions(site, {"__init__.py": "raise ImportError('no')", EXTENSION.name: WHOLE})
    assert said == "failed: not known: ops was not imported"


@pytest.fixture
def visible(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """This process sees the folder's metadata alone, as the session `load` sees the image's."""
    own = [folder for folder in sys.path if Path(folder).name != "site-packages"]
    monkeypatch.setattr(sys, "path", [str(site.root), *own])
    return site


def test_a_library_that_a_package_of_the_image_has_is_served(visible: Site) -> None:
    """As onnxruntime-gpu's plug-in, which no import loads: without it, it computes on the CPU."""
    visible.package("nvidia_q", "1.0", {"libq.so.6": WHOLE})
    visible.package("ops", "1.0", {"__init__.py": "", PLUG_IN: WITHOUT_LIBRARY})
    assert find_lacking_libraries(["ops"], "cpu").outcome == "passed"


def test_of_alternatives_one_has_to_be_served(visible: Site) -> None:
    files: dict[str, str | bytes] = {"libops_cuda126.so": WITHOUT_LIBRARY}
    files["libops_rocm62.so"] = WITHOUT_LIBRARY
    visible.package("ops", "1.0", {"__init__.py": "", **files})
    assert "libops_cuda126.so lacks" in find_lacking_libraries(["ops"], "cpu").reason
    visible.package("other", "1.0", {"__init__.py": "", **files, "libops_cpu.so": WHOLE})
    assert find_lacking_libraries(["other"], "cpu").outcome == "passed"


def test_load_names_the_package_the_file_and_the_libraries(visible: Site) -> None:
    visible.package("ops", "1.0", {"__init__.py": "", PLUG_IN: WITHOUT_LIBRARY})
    finding = find_lacking_libraries(["ops"], "cpu")
    assert (finding.outcome, finding.reason) == ("failed", f"ops 1.0: {PLUG_IN} lacks libq.so.6")
    assert find_lacking_libraries(["torch"], "cpu").outcome == "passed"
    visible.package("tools", "1.0", {"tool": WITHOUT_LIBRARY, "notes": "no program"})
    assert find_lacking_libraries(["tools"], "cpu").reason == "tools 1.0: tool lacks libq.so.6"
    smoke = [{"name": "ops", "optional": [PLUG_IN]}]
    assert find_lacking_libraries(["ops"], "cpu", smoke).outcome == "passed"


def test_a_distribution_that_lists_no_files_is_not_determined(visible: Site) -> None:
    visible.package("ops", "1.0", {"__init__.py": ""})
    (visible.root / "ops-1.0.dist-info/RECORD").unlink()
    finding = find_lacking_libraries(["ops"], "cpu")
    assert finding.outcome == "undetermined"
    assert "no RECORD lists the files of ops" in finding.reason


CHOOSES = """
def choose(kind):
    if kind == "fast":
        try:
            from ops import fast as chosen
        except {caught}:
            pass
    else:
        {other}
    return chosen
"""


@pytest.mark.parametrize(
    ("caught", "other", "outcome"),
    [
        ("ImportError", "from ops import slow as chosen", "passed"),
        ("(OSError, ImportError)", "import ops.slow as chosen", "passed"),
        ("KeyError", "from ops import slow as chosen", "failed"),
        ("ImportError", "chosen = None", "failed"),
        ("ImportError", "from ops import broken as chosen", "failed"),
    ],
)
def test_a_module_that_a_package_imports_as_one_of_several_need_not_load(
    visible: Site, caught: str, other: str, outcome: str
) -> None:
    """As numba's threading layers. A fallback to no compiled code is no alternative."""
    suffix = EXTENSION.name.partition(".")[2]
    modules: dict[str, str | bytes] = {f"fast.{suffix}": WITHOUT_LIBRARY, f"slow.{suffix}": WHOLE}
    text = CHOOSES.format(caught=caught, other=other)
    visible.package("ops", "1.0", {"__init__.py": "", "choosing.py": text, **modules})
    finding = find_lacking_libraries(["ops"], "cpu")
    assert finding.outcome == outcome
    if outcome == "failed":
        assert "lacks libq.so.6" in finding.reason


def test_a_damaged_library_is_not_determined(visible: Site) -> None:
    visible.package("ops", "1.0", {"__init__.py": "", "libops.so": WHOLE[:500]})
    finding = find_lacking_libraries(["ops"], "cpu")
    assert finding.outcome == "undetermined"
    assert "no loader could read libops.so" in finding.reason


def test_what_torch_requires_is_torch_s_own(visible: Site) -> None:
    for name in ("nvidia_nvshmem", "ops"):
        visible.package(name, "1.0", {"__init__.py": ""})
    with (visible.root / "torch-2.13.0+cpu.dist-info/METADATA").open("a") as file:
        file.write('Requires-Dist: nvidia-nvshmem==1.0; platform_system == "Linux"\n')
    assert added_to(read_installed(), ("torch",), ["torch", "nvidia-nvshmem", "ops"]) == {"ops"}


def linked(folder: Path, name: str, *options: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("this machine has no C compiler")
    source = folder / "empty.c"
    source.write_text("int here(void) { return 1; }\n")
    library = folder / name
    argv = [compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-Wl,--no-as-needed"]
    subprocess.run([*argv, f"-Wl,-soname,{name}", *options], check=True)
    return library


def test_libraries_are_looked_for_where_the_loader_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    other = tmp_path / "other"
    other.mkdir()
    needed = linked(other, "libneeded.so.1")
    file = linked(tmp_path, "libfile.so", str(needed))
    assert dynamic_of(needed).soname == "libneeded.so.1"
    assert LoaderPaths(cached=frozenset({"libc.so.6"})).unserved(file) == ("libneeded.so.1",)
    assert loader_paths([], "cpu").unserved(file) == ("libneeded.so.1",)
    assert loader_paths([needed], "cpu").unserved(file) == ()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other))
    assert loader_paths([], "cpu").unserved(file) == ()
    monkeypatch.delenv("LD_LIBRARY_PATH")
    for flag in ("--enable-new-dtags", "--disable-new-dtags"):
        wl = f"-Wl,{flag},-rpath,$ORIGIN/other"
        assert loader_paths([], "cpu").unserved(linked(tmp_path, "libb.so", str(needed), wl)) == ()


def test_a_driver_s_library_is_the_host_s_on_that_vendor_s_devices_only(tmp_path: Path) -> None:
    driver = linked(tmp_path, "libcuda.so.1")
    file = linked(tmp_path, "libfile.so", str(driver))
    driver.unlink()
    assert loader_paths([], "nvidia").unserved(file) == ()
    for vendor in ("cpu", "amd", "gaudi", "intel"):
        assert loader_paths([], vendor).unserved(file) == ("libcuda.so.1",)
    assert set(DRIVERS) == {"nvidia"}


def test_hostile_files_need_nothing_and_raise_nothing() -> None:
    for length in range(0, 4096, 7):
        assert read_dynamic(WHOLE[:length]) is not None
    data = bytearray(WHOLE)
    for place in range(16, 400):
        data[place] ^= 0xFF
        assert read_dynamic(bytes(data)).needed is not None
    assert read_dynamic(b"\x7fELF\x02\x01" + b"\xff" * 400).needed == ()


def another_numpy(site: Site, files: dict[str, str | bytes], *, version: str = "2.4.0") -> None:
    site.package("numpy", version, {"__init__.py": f"__version__ = {version!r}\n"})
    site.package("wf_ext", "1.0", files)
    info = site.root / "wf_ext-1.0.dist-info"
    (info / "WHEEL").write_text(WHEEL)
    with (info / "METADATA").open("a") as file:
        file.write("Requires-Dist: numpy>=1.20\n")


def test_an_extension_of_another_numpy_is_found_without_smoke(visible: Site) -> None:
    another_numpy(visible, {"__init__.py": f"raise ValueError({OTHER!r})"})
    finding = find_other_numpy(["wf-ext", "torch", "numpy"])
    assert finding.outcome == "failed"
    way = "built for another numpy, 1.x, not 2.4.0: take numpy<2, or a newer wf_ext"
    assert finding.reason.startswith(f"wf_ext 1.0: {way} (wf_ext: ValueError: numpy.dtype size")


def test_and_by_smoke(visible: Site) -> None:
    another_numpy(visible, {"__init__.py": f"raise ValueError({OTHER!r})"})
    results = found({"name": "x", "imports": ["wf_ext"]})
    assert results["x: imports"].outcome == "failed"
    assert "numpy.dtype size changed" in results["x: imports"].reason
    assert results["x: extensions load"].outcome == "failed"


def test_an_extension_that_names_numpy_is_imported_by_its_own_name(visible: Site) -> None:
    """Its package imports without it, as pycocotools does."""
    name = f"_mask{EXTENSION.name[EXTENSION.name.index('.') :]}"
    data = WHOLE + b"\0numpy.core.multiarray failed to import\0"
    another_numpy(visible, {"__init__.py": "", name: data})
    (one,) = installed_code.distributions_of(["wf-ext"])
    assert installed_code._to_import(one) == ("wf_ext._mask",)
    # It does not load (its first function has another name), and numpy is not why.
    assert find_other_numpy(["wf-ext"]).outcome == "passed"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os._exit(3)", "its import ended the process with 3"),
        ("import os; os.abort()", "its import ended the process with -6"),
        ("import time; time.sleep(60)", "stopped after 0.5 s of importing"),
    ],
)
def test_an_import_that_comes_to_no_end_is_not_determined(
    visible: Site, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    monkeypatch.setattr(installed_code, "SECONDS", 0.5 if "sleep" in program else 60.0)
    another_numpy(visible, {"__init__.py": program})
    finding = find_other_numpy(["wf-ext"])
    assert finding.outcome == "undetermined"
    assert said in finding.reason


def test_a_newer_numpy_s_extension_beside_an_older_one() -> None:
    error = "RuntimeError: module compiled against ABI version 0x2000000 but this is 0x1000009"
    assert other_numpy(error, "ops 1.0", "1.26.4").startswith(
        "built for another numpy, a newer one than 1.26.4: take that numpy, or an older ops"
    )
    assert other_numpy("ImportError: libfoo.so.1: cannot open", "ops 1.0", "2.4.0") == ""


def test_a_pure_package_and_numpy_itself_are_not_imported(visible: Site) -> None:
    another_numpy(visible, {"__init__.py": "raise SystemExit"})
    (visible.root / "wf_ext-1.0.dist-info/WHEEL").write_text("Root-Is-Purelib: true\n")
    finding = find_other_numpy(["wf-ext", "numpy"])
    assert finding.outcome == "passed"
    assert finding.reason.startswith("nothing to try")
