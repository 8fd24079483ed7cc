"""The table of guard cases: each fault is named by the import, by `warpfront-guard verify` and by
the host's check in the `load` session, and each innocent thing by none of them. The import is tried
where times of folders say nothing, and as on overlayfs, where an unchanged stack takes a fast path.
"""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from guarded import (
    TORCH,
    VISION,
    GuardedPython,
    compiled_guard,
    cpu_policy,
    install,
    make_environment,
    places_below,
)
from stand_in_torch import extension_module

from warpfront_checks.guard.channels import block
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.sealing import seal

pytestmark = pytest.mark.process

SRC = Path(__file__).resolve().parents[3] / "src"
FILES: Mapping[str, str | bytes] = {
    **TORCH,
    "torch/version.py": "__version__ = '2.13.0+cpu'\nwhose = 'ours'\nassert whose\n",
    "torch/bare/inner.py": "",
    "torchgen/__init__.py": "",
    "functorch/__init__.py": "",
}
EVIL = "__version__ = '2.13.0+cpu'\nwhose = 'evil'\nassert whose\n"
IMPORT = "import torch, torch.nn, torch.version, torchgen, functorch, torch.bare.inner"
LOAD = """
import json, sys
sys.path.append({src!r})
from pathlib import Path
from warpfront_checks.guarded import check_guard
from warpfront_checks.guard.places import Places
home, etc, packages = map(Path, {places!r})
found = check_guard({claimed!r}, Places(home=home, etc=etc, site_packages=packages))
print(json.dumps([found.outcome, found.reason]))
"""
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One guarded Python, and how it is started from here on."""

    own: GuardedPython
    environment: dict[str, str] = field(default_factory=dict)
    program: list[str] = field(default_factory=lambda: [IMPORT])

    @property
    def site(self) -> Path:
        return self.own.places.site_packages

    @property
    def elsewhere(self) -> Path:
        folder = self.own.folder / "elsewhere"
        folder.mkdir(exist_ok=True)
        return folder

    def put(self, path: str, content: str | bytes) -> Path:
        target = self.site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def compiled(self, target: Path, text: str = EVIL, *, level: int = 0) -> None:
        """Byte code that Python never compares with its source."""
        target.parent.mkdir(parents=True, exist_ok=True)
        source = self.elsewhere / "source.py"
        source.write_text(text)
        py_compile.compile(
            str(source), str(target), optimize=level, invalidation_mode=UNCHECKED, doraise=True
        )

    def cached(self, level: int = 0, folder: Path | None = None) -> Path:
        tag = sys.implementation.cache_tag + (f".opt-{level}" if level else "")
        return (folder or self.site / "torch/__pycache__") / f"version.{tag}.pyc"

    def started_by(self, statements: str) -> None:
        """Code that runs at every start of Python, after the guard's own .pth."""
        self.put("zz_fault.py", statements)
        self.put("zz_fault.pth", "import zz_fault\n")

    def on_path(self) -> Path:
        self.environment["PYTHONPATH"] = str(self.elsewhere)
        return self.elsewhere

    def imported_on_overlayfs(self, *more: str) -> subprocess.CompletedProcess[str]:
        """The import where a change has renewed all folders above it, as overlayfs does when it
        copies a file of a lower layer up.
        """
        since = self.own.places.manifest.stat().st_ctime_ns
        for folder, folders, files in os.walk(self.site):
            for name in (*folders, *files):
                path = Path(folder, name)
                if path.lstat().st_ctime_ns >= since:
                    for above in path.relative_to(self.site).parents[:-1]:
                        os.utime(self.site / above)
        mounts = self.own.folder / "mounts"
        mounts.write_text("1 0 0:1 / / rw - overlay overlay rw\n")
        code = self.own.places.library / "warpfront_guard/fast_path.py"
        before = code.read_text()
        code.write_text(before.replace("/proc/self/mountinfo", str(mounts)))
        program = "\n".join((*self.program, *more))
        done = self.own.run("-B", "-c", program, environment=self.environment)
        code.write_text(before)
        return done

    def answers(self) -> dict[str, str]:
        """What each names; "" where it names nothing."""
        load = LOAD.format(
            src=str(SRC),
            places=[str(one) for one in _roots(self.own.places)],
            claimed=cpu_policy().document(),
        )
        started = self.own.run("-c", "\n".join(self.program), environment=self.environment)
        verified = self.own.program("verify", **self.environment)
        loaded = self.own.run("-c", load, environment=self.environment)
        return {
            "import": _named_by_import(started),
            "import on overlayfs": _named_by_import(self.imported_on_overlayfs()),
            "verify": verified.stdout + verified.stderr if verified.returncode else "",
            "load": _named_by_load(loaded),
        }


def _roots(places: Places) -> tuple[Path, Path, Path]:
    return places.home, places.etc, places.site_packages


def _named_by_import(done: subprocess.CompletedProcess[str]) -> str:
    lines = [one for one in done.stderr.splitlines() if "warpfront guard: " in one]
    assert lines or done.returncode == 0, done.stderr
    return "\n".join(lines)


def _named_by_load(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    outcome, reason = json.loads(done.stdout.splitlines()[-1])
    return "" if outcome == "passed" else str(reason)


def _a_python(folder: Path) -> GuardedPython:
    """As an image has it, with a sitecustomize; in an image that lies in the standard library."""
    places = places_below(folder, make_environment(folder / "venv"))
    install(places.site_packages, "torch", "2.13.0+cpu", FILES)
    install(places.site_packages, "torchvision", "0.28.0+cpu", VISION, requires=["torch"])
    for source in places.site_packages.rglob("*.py"):
        py_compile.compile(str(source), doraise=True)
    guarded = GuardedPython(folder=folder, places=places)
    seal(cpu_policy(), places, python=str(guarded.python))
    shutil.copytree(compiled_guard(), places.library / "warpfront_guard")
    (places.site_packages / "sitecustomize.py").write_text(block(places))
    os.utime(places.manifest)  # as in an image, the seal is newer than all that it is of
    return guarded


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    return Subject(own=_a_python(tmp_path))


Fault = Callable[[Subject], None]
FAULTS: dict[str, Fault] = {}
INNOCENT: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    FAULTS[function.__name__] = function
    return function


def innocent(function: Fault) -> Fault:
    INNOCENT[function.__name__] = function
    return function


# -- Files that Python's import system could load


@fault
def a_package_of_byte_code_in_the_place_of_a_module(one: Subject) -> None:
    one.compiled(one.site / "torch/version/__init__.pyc")


@fault
def a_package_in_the_place_of_a_module(one: Subject) -> None:
    one.put("torch/version/__init__.py", EVIL)


@fault
def byte_code_without_a_source(one: Subject) -> None:
    one.compiled(one.site / "torch/more.pyc")
    one.program[:] = ["import torch.more"]


@fault
def byte_code_of_a_package_of_its_own_beside(one: Subject) -> None:
    one.compiled(one.on_path() / "torchgen.pyc")


@fault
def a_source_on_the_path(one: Subject) -> None:
    (one.on_path() / "functorch.py").write_text(EVIL)


@fault
def an_extension_on_the_path(one: Subject) -> None:
    (one.on_path() / f"torch{EXTENSION_SUFFIXES[0]}").write_bytes(extension_module("torch"))


@fault
def an_archive_on_the_path(one: Subject) -> None:
    archive = one.elsewhere / "torch.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("torchgen/__init__.py", EVIL)
    one.environment["PYTHONPATH"] = str(archive)


@fault
def a_folder_where_python_is_started(one: Subject) -> None:
    (one.own.folder / "torch").mkdir()
    (one.own.folder / "torch" / "__init__.py").write_text(EVIL)


@fault
def a_pth_with_another_folder_first(one: Subject) -> None:
    (one.elsewhere / "torch").mkdir()
    (one.elsewhere / "torch" / "__init__.py").write_text(EVIL)
    one.started_by(f"import sys; sys.path.insert(0, {str(one.elsewhere)!r})")


def _an_extension(number: int) -> Fault:
    def put(one: Subject) -> None:
        name = f"torch/version{EXTENSION_SUFFIXES[number]}"
        one.put(name, extension_module("version"))

    return put


for _number, _suffix in enumerate(EXTENSION_SUFFIXES):
    FAULTS[f"an extension module{_suffix}"] = _an_extension(_number)


@fault
def an_extension_in_the_place_of_the_package(one: Subject) -> None:
    one.put(f"torch/__init__{EXTENSION_SUFFIXES[0]}", extension_module("torch"))


@fault
def a_module_that_was_added(one: Subject) -> None:
    one.put("torch/added.py", "")
    one.program[:] = ["import torch"]


@fault
def a_portion_of_a_namespace(one: Subject) -> None:
    one.put("torch/portion/inner.py", "")
    one.program[:] = ["import torch"]


@fault
def a_module_in_the_folder_of_byte_code(one: Subject) -> None:
    one.put("torch/__pycache__/inner.py", "")
    one.program[:] = ["import torch.__pycache__.inner"]


@fault
def a_link_to_a_folder(one: Subject) -> None:
    (one.elsewhere / "__init__.py").write_text(EVIL)
    (one.site / "torch/version").symlink_to(one.elsewhere)


@fault
def a_link_to_a_folder_of_the_stack(one: Subject) -> None:
    (one.site / "torch/version").symlink_to("nn")


@fault
def a_link_to_a_file_of_the_same_size(one: Subject) -> None:
    source = one.elsewhere / "version.py"
    source.write_text(EVIL)
    (one.site / "torch/version.py").unlink()
    (one.site / "torch/version.py").symlink_to(source)


@fault
def the_package_is_a_link(one: Subject) -> None:
    shutil.move(one.site / "torchgen", one.elsewhere / "torchgen")
    (one.site / "torchgen").symlink_to(one.elsewhere / "torchgen")


@fault
def other_content_of_the_same_size_and_time(one: Subject) -> None:
    file = one.site / "torch/version.py"
    before = file.stat()
    file.write_text(EVIL)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@fault
def a_file_that_is_gone(one: Subject) -> None:
    (one.site / "torch/nn/__init__.py").unlink()


# -- Byte code


@fault
def byte_code_that_python_never_compares(one: Subject) -> None:
    one.compiled(one.cached())


@fault
def byte_code_of_level_one(one: Subject) -> None:
    one.compiled(one.cached(1), level=1)
    one.environment["PYTHONOPTIMIZE"] = "1"


@fault
def byte_code_of_level_two(one: Subject) -> None:
    one.compiled(one.cached(2), level=2)
    one.environment["PYTHONOPTIMIZE"] = "2"


@fault
def byte_code_with_the_time_of_its_source(one: Subject) -> None:
    source = one.elsewhere / "version.py"
    source.write_text(EVIL)
    shutil.copystat(one.site / "torch/version.py", source)
    py_compile.compile(str(source), str(one.cached()), doraise=True)


@fault
def byte_code_of_another_image_below_a_shared_prefix(one: Subject) -> None:
    prefix = one.elsewhere / "prefix"
    source = one.elsewhere / "version.py"
    source.write_text(EVIL)
    shutil.copystat(one.site / "torch/version.py", source)
    target = one.cached(folder=Path(f"{prefix}{one.site}/torch"))
    py_compile.compile(str(source), str(target), doraise=True)
    one.environment["PYTHONPYCACHEPREFIX"] = str(prefix)


@fault
def byte_code_that_is_a_link(one: Subject) -> None:
    one.compiled(one.elsewhere / "version.pyc")
    one.cached().unlink()
    one.cached().symlink_to(one.elsewhere / "version.pyc")


# -- The guard itself


def _other_guard(folder: Path) -> None:
    (folder / "warpfront_guard").mkdir()
    (folder / "warpfront_guard" / "__init__.py").write_text("")
    (folder / "warpfront_guard" / "startup.py").write_text("def start(*_):\n    pass\n")
    (folder / "warpfront_guard" / "verification.py").write_text("def verify(*_, **__): return []\n")


@fault
def a_distribution_that_is_another_guard(one: Subject) -> None:
    _other_guard(one.site)


@fault
def another_guard_on_pythonpath(one: Subject) -> None:
    _other_guard(one.on_path())


@fault
def another_guard_where_python_is_started(one: Subject) -> None:
    _other_guard(one.own.folder)


@fault
def a_guard_of_byte_code(one: Subject) -> None:
    one.compiled(one.site / "warpfront_guard.pyc")


# -- Start-up code


@fault
def a_loader_with_another_method(one: Subject) -> None:
    one.started_by(
        "import importlib.machinery as m\nreal = m.SourceFileLoader.get_code\n"
        "m.SourceFileLoader.get_code = lambda self, name: real(self, name)\n"
    )


@fault
def a_loader_with_a_method_more(one: Subject) -> None:
    one.started_by(
        "import importlib.machinery as m\n"
        "m.SourceFileLoader.__getattribute__ = lambda self, one: object.__getattribute__(self, one)"
    )


@fault
def a_finder_with_another_method(one: Subject) -> None:
    one.started_by(
        "import importlib.machinery as m\nreal = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = classmethod(lambda cls, *a, **k: real(*a, **k))\n"
    )


@fault
def a_function_of_the_import_system(one: Subject) -> None:
    one.started_by(
        "import sys\nm = sys.modules['_frozen_importlib_external']\nreal = m._compile_bytecode\n"
        "m._compile_bytecode = lambda *a, **k: real(*a, **k)\n"
    )


@fault
def a_function_written_in_c(one: Subject) -> None:
    one.started_by(
        "import marshal\nreal = marshal.loads\ndef loads(*a, **k): return real(*a, **k)\n"
        "marshal.loads = loads\n"
    )


@fault
def an_import_of_anothers_making(one: Subject) -> None:
    one.started_by(
        "import builtins\nreal = builtins.__import__\n"
        "builtins.__import__ = lambda *a, **k: real(*a, **k)\n"
    )


@fault
def a_finder_in_the_cache_of_the_path(one: Subject) -> None:
    one.started_by(
        "import sys, importlib.machinery as m\n"
        "class Finder(m.FileFinder):\n"
        "    def find_spec(self, name, target=None):\n"
        "        spec = super().find_spec(name, target)\n"
        "        if spec and name == 'torch.version':\n"
        "            class Loader(m.SourceFileLoader):\n"
        "                def get_code(self, name):\n"
        "                    return compile('whose = 1; __version__ = 2', 'x', 'exec')\n"
        "            spec.loader = Loader(name, spec.origin)\n"
        "        return spec\n"
        f"folder = {str(one.site / 'torch')!r}\n"
        "sys.path_importer_cache[folder] = Finder(folder, (m.SourceFileLoader, ['.py']))\n"
    )


@fault
def a_finder_in_the_cache_with_a_method_of_its_own(one: Subject) -> None:
    one.started_by(
        "import sys, pkgutil\n"
        f"finder = pkgutil.get_importer({str(one.site / 'torch')!r})\n"
        "real = finder.find_spec\n"
        "finder.find_spec = lambda *a: real(*a)\n"
    )


@fault
def a_hook_of_the_path(one: Subject) -> None:
    one.started_by(
        "import sys, importlib.machinery as m\n"
        "class Loader(m.SourceFileLoader):\n"
        "    def source_to_code(self, data, path, **k):\n"
        "        return compile(data.replace(b'ours', b'evil'), path, 'exec')\n"
        "    def get_code(self, name):\n"
        "        return self.source_to_code(self.get_data(self.path), self.path)\n"
        "real = m.FileFinder.path_hook((Loader, ['.py']))\n"
        "def hook(folder):\n"
        "    if '/torch' in folder: return real(folder)\n"
        "    raise ImportError\n"
        "sys.path_hooks.insert(0, hook)\n"
    )


@fault
def a_finder_for_a_module(one: Subject) -> None:
    other = one.elsewhere / "version.py"
    other.write_text(EVIL)
    one.started_by(
        "import sys, importlib.util as u\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'torch.version':\n"
        f"            return u.spec_from_file_location(name, {str(other)!r})\n"
        "sys.meta_path.insert(0, Finder)\n"
    )


@fault
def a_finder_for_a_package(one: Subject) -> None:
    other = one.elsewhere / "torchgen.py"
    other.write_text(EVIL)
    one.started_by(
        "import sys, importlib.util as u\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        if name == 'torchgen':\n"
        f"            return u.spec_from_file_location(name, {str(other)!r})\n"
        "sys.meta_path.insert(0, Finder)\n"
    )


@fault
def a_package_in_the_modules(one: Subject) -> None:
    one.started_by("import sys, types; sys.modules['torch'] = types.ModuleType('torch')")


@fault
def a_module_in_the_modules(one: Subject) -> None:
    one.started_by("import sys, types; sys.modules['torch.nn'] = types.ModuleType('torch.nn')")


@fault
def a_plugin_that_torch_loads(one: Subject) -> None:
    entry = {"plug_1-1.0.dist-info/entry_points.txt": "[torch.backends]\nmine = x:y\n"}
    install(one.site, "plug-1", "1.0", entry)


# -- The interpreter


@fault
def a_script_in_the_place_of_the_interpreter(one: Subject) -> None:
    python = one.own.python.with_name("python3")
    target = python.resolve()
    python.unlink()
    python.write_text(f'#!/bin/sh\nexec {target} "$@"\n')
    python.chmod(0o755)


@fault
def an_interpreter_that_leads_elsewhere(one: Subject) -> None:
    python = one.own.python.with_name("python3")
    python.unlink()
    python.symlink_to("/bin/sh")


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_by_import_verify_and_load_alike(name: str, subject: Subject) -> None:
    FAULTS[name](subject)
    answers = subject.answers()
    assert {who: bool(words) for who, words in answers.items()} == dict.fromkeys(answers, True)


# -- What goes on without a word


@innocent
def nothing_at_all(one: Subject) -> None:
    del one


@innocent
def an_optimizing_python_that_writes_byte_code(one: Subject) -> None:
    one.environment["PYTHONOPTIMIZE"] = "1"
    for _ in range(2):  # the second takes what the first has written
        assert one.own.run("-c", IMPORT, environment=one.environment).returncode == 0
    assert one.cached(1).is_file()


@innocent
def a_python_that_writes_no_byte_code(one: Subject) -> None:
    shutil.rmtree(one.site / "torch/__pycache__")
    one.environment["PYTHONDONTWRITEBYTECODE"] = "1"


@innocent
def byte_code_that_python_makes_anew(one: Subject) -> None:
    shutil.rmtree(one.site / "torch/__pycache__")
    for _ in range(2):
        assert one.own.run("-c", IMPORT).returncode == 0
    assert one.cached().is_file()


@innocent
def a_prefix_of_ones_own(one: Subject) -> None:
    one.environment["PYTHONPYCACHEPREFIX"] = str(one.elsewhere / "prefix")
    assert one.own.run("-c", IMPORT, environment=one.environment).returncode == 0
    assert [*(one.elsewhere / "prefix").rglob("version.*.pyc")]


@innocent
def byte_code_below_a_prefix_that_python_does_not_take(one: Subject) -> None:
    """Another image's, of a source with another size: Python compiles its own."""
    prefix = one.elsewhere / "prefix"
    source = one.elsewhere / "version.py"
    source.write_text(EVIL + "more = 1\n")
    target = one.cached(folder=Path(f"{prefix}{one.site}/torch"))
    py_compile.compile(str(source), str(target), doraise=True)
    one.environment["PYTHONPYCACHEPREFIX"] = str(prefix)


@innocent
def files_with_new_times(one: Subject) -> None:
    """`chown -R`, `touch`, a copied environment."""
    for path in (one.site / "torch").rglob("*.py"):
        path.touch()


@innocent
def byte_code_of_another_python(one: Subject) -> None:
    one.put("torch/__pycache__/version.cpython-399.pyc", b"other")


@innocent
def an_editable_install_and_its_finder(one: Subject) -> None:
    one.started_by(
        "import sys\n"
        "class Finder:\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        "        return None\n"
        "sys.meta_path.append(Finder)\n"
    )


@innocent
def a_library_beside_the_stack_on_the_path(one: Subject) -> None:
    (one.on_path() / "torch_helpers.py").write_text("")
    (one.elsewhere / "torch").mkdir()  # without an __init__.py: the next folder's package wins


@innocent
def a_relative_folder_on_the_path(one: Subject) -> None:
    (one.own.folder / "mine").mkdir()
    (one.own.folder / "mine" / "of_my_own.py").write_text("")
    one.environment["PYTHONPATH"] = "mine"
    one.program[:] = ["import of_my_own", IMPORT]


@innocent
def another_spelling_of_the_folder(one: Subject) -> None:
    link = one.own.folder / "lib64"
    link.symlink_to(one.site)
    one.environment["PYTHONPATH"] = str(link)


@pytest.mark.parametrize("name", INNOCENT)
def test_an_innocent_thing_is_named_by_none(name: str, subject: Subject) -> None:
    INNOCENT[name](subject)
    assert set(subject.answers().values()) == {""}


TAKEN = "import sys; print('warpfront_guard.watch' not in sys.modules)"


def test_an_unchanged_stack_takes_the_fast_path_and_a_changed_one_does_not(
    subject: Subject,
) -> None:
    assert subject.imported_on_overlayfs(TAKEN).stdout == "True\n"
    subject.put("torch/added.txt", "")  # of no consequence, but the folder was written to
    assert subject.imported_on_overlayfs(TAKEN).stdout == "False\n"


def test_a_distribution_beside_the_stack_leaves_the_fast_path_and_a_plugin_does_not(
    subject: Subject,
) -> None:
    install(subject.site, "six", "1.17.0", {"six.py": ""})
    assert subject.imported_on_overlayfs(TAKEN).stdout == "True\n"
    (subject.site / "six-1.17.0.dist-info/entry_points.txt").write_text("[torch.backends]\nx = y\n")
    assert "six has it load its own code" in subject.imported_on_overlayfs().stderr


def test_a_header_that_was_added_is_for_verify_and_load(subject: Subject) -> None:
    subject.put("torch/include/added.h", "")
    answers = subject.answers()
    assert answers["import"] == ""
    assert "stray: torch/include/added.h" in answers["verify"]
    assert "torch/include/added.h" in answers["load"]


# -- What an import cannot see: docs/guard.md, Limits


def test_start_up_code_that_takes_the_watch_away_is_named_by_verify_and_load(
    subject: Subject,
) -> None:
    subject.started_by("import warpfront_guard.startup as s; s.Watcher.find_spec = lambda *a: None")
    answers = subject.answers()
    assert (answers["import"], "the watch's Watcher" in answers["verify"]) == ("", True)
    assert answers["load"]


def test_byte_code_of_the_guard_itself_is_named_by_load(subject: Subject) -> None:
    (compiled,) = (subject.own.places.library / "warpfront_guard/__pycache__").glob("watch.*.pyc")
    blind = "look_at = look_after = instead_of = lambda *_, **__: None\n"
    subject.compiled(compiled, f"{blind}judge = look_at\n")
    answers = subject.answers()
    assert answers["import"] == ""
    assert "byte code of another source" in answers["load"]
