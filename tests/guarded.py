"""Stacks for the guard's tests: small stand-ins of torch's distributions, unpacked as an installer
leaves them, with a guard around them below one folder.
"""

from __future__ import annotations

import atexit
import compileall
import contextlib
import functools
import io
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from standins import stand_in_wheel

import warpfront_checks.guard
from warpfront_checks.guard import __main__ as program
from warpfront_checks.guard.channels import environment_channels
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import Policy, Shim
from warpfront_checks.guard.sealing import seal
from warpfront_checks.guard.verification import Finding, verify

GUARD = Path(warpfront_checks.guard.__file__).parent
TORCH_VERSION_PY = "__version__ = '2.13.0+cpu'\ncuda = None\nhip = None\n"
TORCH: Mapping[str, str | bytes] = {
    "torch/__init__.py": "from torch.version import __version__\n",
    "torch/version.py": TORCH_VERSION_PY,
    "torch/nn/__init__.py": "",
    "torch/include/ATen.h": "#pragma once\n",
    "torch/lib/libtorch.so": b"\x7fELF stand-in",
}
VISION: Mapping[str, str | bytes] = {"torchvision/__init__.py": "import torch\n"}
TRITON: Mapping[str, str | bytes] = {"triton/__init__.py": "__version__ = '3.4.0'\n"}
A_SHIM = Shim(
    name="triton",
    version="3.4.0+pytorch.triton.rocm",
    requires="pytorch-triton-rocm===3.4.0",
)


def cpu_policy(**changes: Any) -> Policy:
    """torch 2.13.0+cpu with torchvision; torchaudio goes with it and is not there."""
    facts: dict[str, Any] = {
        "cell": "cpu-torch",
        "title": "PyTorch for CPUs",
        "index": "https://download.pytorch.org/whl/cpu",
        "protected": {"torch": "2.13.0+cpu", "torchvision": "0.28.0+cpu"},
        "companions": {"torchaudio": "2.11.0+cpu"},
        "sentinels": {"nvidia-cublas-cu12": "cpu.image.has.no.cuda"},
    }
    return Policy(**{**facts, **changes})


def rocm_policy(**changes: Any) -> Policy:
    """torch 2.8.0+rocm6.4 with its triton and the shim; torchvision goes with it and is absent."""
    facts: dict[str, Any] = {
        "cell": "rocm-torch",
        "title": "PyTorch for ROCm",
        "protected": {"torch": "2.8.0+rocm6.4", "pytorch-triton-rocm": "3.4.0"},
        "companions": {"torchaudio": "2.8.0+rocm6.4", "torchvision": "0.23.0+rocm6.4"},
        "sentinels": {
            "nvidia-cublas-cu12": "rocm.image.has.no.cuda",
            "pytorch-triton": "rocm.image.has.another.triton",
        },
        "shims": (A_SHIM,),
    }
    return Policy(**{**facts, **changes})


def install(
    site_packages: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes] | None = None,
    requires: Sequence[str] = (),
) -> Path:
    """What an installer leaves of a stand-in wheel; returns its dist-info."""
    wheels = site_packages.parent / "wheels"
    wheel = stand_in_wheel(wheels, name, version, files=files, requires=requires)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site_packages)
    info = site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
    (info / "INSTALLER").write_text("stand-in\n")
    return info


def remove(site_packages: Path, *folders: str) -> None:
    for folder in folders:
        shutil.rmtree(site_packages / folder)


def install_cpu_stack(site_packages: Path) -> None:
    install(site_packages, "torch", "2.13.0+cpu", TORCH)
    install(site_packages, "torchvision", "0.28.0+cpu", VISION, requires=["torch"])
    install(site_packages, "six", "1.17.0", {"six.py": ""})


def install_rocm_stack(site_packages: Path) -> None:
    install(site_packages, "torch", "2.8.0+rocm6.4", TORCH, requires=["pytorch-triton-rocm==3.4.0"])
    install(site_packages, "pytorch-triton-rocm", "3.4.0", TRITON)


def places_below(folder: Path, site_packages: Path | None = None) -> Places:
    """All of a guard's places inside one folder."""
    packages = site_packages or folder / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (folder / "etc").mkdir(exist_ok=True)
    return Places(home=folder / "home", etc=folder / "etc", site_packages=packages)


def sealed_cpu(folder: Path, policy: Policy | None = None) -> Places:
    places = places_below(folder)
    install_cpu_stack(places.site_packages)
    seal(policy or cpu_policy(), places, python=sys.executable)
    return places


def sealed_rocm(folder: Path) -> Places:
    places = places_below(folder)
    install_rocm_stack(places.site_packages)
    seal(rocm_policy(), places, python=sys.executable)
    return places


def findings(places: Places, **options: Any) -> list[str]:
    """What `verify` finds where the environment is as an image sets it."""
    return [str(finding) for finding in verified(places, **options)]


def verified(places: Places, **options: Any) -> list[Finding]:
    return verify(places, environment_channels(places), **options)


@dataclass(frozen=True, kw_only=True)
class GuardedPython:
    """A virtual environment with a sealed stack, as an image has it: real files, real processes."""

    folder: Path
    places: Places

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def ahead(self) -> Path:
        """Return the folder in which a test's stand-in for the standard library lies, if any."""
        return self.folder / "ahead"

    def stand_in(self, text: str) -> None:
        """Give each start `sitecustomize`; a test leaves the standard library's alone."""
        self.ahead.mkdir(exist_ok=True)
        (self.ahead / "sitecustomize.py").write_text(text)

    def run(
        self,
        *arguments: str,
        python: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A start of this Python in the environment that the image sets, with `environment` added;
        "" takes a variable out.
        """
        # Before the standard library, where Debian has a `sitecustomize` of its own.
        ahead = {"PYTHONPATH": str(self.ahead)} if self.ahead.is_dir() else {}
        return subprocess.run(
            [str(python or self.python), *arguments],
            env=self.given({**ahead, **(environment or {})}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def given(self, more: Mapping[str, str]) -> dict[str, str]:
        set_by_the_image = environment_channels(self.places)
        user = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "user")}
        return {
            name: value for name, value in {**user, **set_by_the_image, **more}.items() if value
        }

    def program(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A start of `warpfront-guard`, as the image's program."""
        program = self.places.programs / "warpfront-guard"
        hidden = ("--home", str(self.places.home), "--etc", str(self.places.etc))
        return self.run(str(program), *hidden, *arguments, environment=environment)

    def guard(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """What `program` says and returns, in this process; the Pythons that it starts are that of
        the environment.
        """
        out, err = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.dict(os.environ, self.given(environment), clear=True),
            mock.patch.object(sys, "executable", str(self.python)),
            mock.patch.object(sys, "path", [*sys.path, str(self.places.site_packages)]),
            mock.patch.object(program, "places_of_this_python", return_value=self.places),
        ):
            try:
                code = program.main(arguments)
            except SystemExit as wrong:
                code = int(wrong.code or 0)
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def a_guarded_python(folder: Path, policy: Policy | None = None) -> GuardedPython:
    """What `install` leaves, with the guard as it was compiled once. Needs the marker `process`."""
    guarded = _a_python_with_a_stack(folder)
    seal(policy or cpu_policy(), guarded.places, python=str(guarded.python))
    shutil.copytree(compiled_guard(), guarded.places.library / "warpfront_guard")
    return guarded


def an_unguarded_python(folder: Path) -> GuardedPython:
    """The stack and the guard's files, before `install` or `adopt` has run."""
    guarded = _a_python_with_a_stack(folder)
    shutil.copytree(GUARD, guarded.places.library / "warpfront_guard", ignore=_SOURCES_ALONE)
    return guarded


def make_environment(folder: Path, *, sees_packages: bool = False) -> Path:
    """What `python -m venv --without-pip` makes of this Python; returns its site-packages."""
    maker = venv.EnvBuilder(system_site_packages=sees_packages, symlinks=True)
    maker.create(folder)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return folder / "lib" / version / "site-packages"


def _a_python_with_a_stack(folder: Path) -> GuardedPython:
    places = places_below(folder, make_environment(folder / "venv"))
    install_cpu_stack(places.site_packages)
    return GuardedPython(folder=folder, places=places)


_SOURCES_ALONE = shutil.ignore_patterns("__pycache__")


@functools.cache
def compiled_guard() -> Path:
    """The guard with its byte code, as `seal` compiles it where it finds its files."""
    folder = Path(tempfile.mkdtemp(prefix="warpfront-guard-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    guard = folder / "warpfront_guard"
    shutil.copytree(GUARD, guard, ignore=_SOURCES_ALONE)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(guard, quiet=2, invalidation_mode=checked)
    return guard
