"""What is offered against an image: an index laid out as files, of stand-ins with the real names
and metadata shape, and small projects.

`pypi/` is what a tool asks by default: PyPI's torch of other versions, without a label, needing
`nvidia-*` and triton. `vendor/` is where the image's own build comes from, `other/` another
vendor's. No file of them is a real torch.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from adversary.conda_channel import write_channel
from adversary.stacks import INDEX, Stack
from packaging.utils import canonicalize_name
from stand_in_torch import extension_module, torch_files, torchvision_files, triton_files
from standins import stand_in_wheel

_TAG = "cp311-cp311-manylinux_2_28_x86_64"
_TRITON_NEWER = "3.9.0"
# Names that own `triton/` besides the image's, or would be another torch.
_OTHER_TRITONS = {"triton-rocm": "3.8.0", "pytorch-triton-rocm": "3.4.0", "triton-xpu": "3.6.0"}
_OTHER_TORCHES = {"torch-nightly": "2.16.0", "torch-cpu": "2.15.0", "torch-rocm": "2.15.0"}
# What torch needs, at versions that it cannot work with.
_TOO_OLD = {"typing-extensions": "4.5.0", "sympy": "1.5"}
_LIBRARIES = {
    "nvidia-cublas-cu12": ("12.8.4.1", "nvidia/cublas/lib/libcublas.so.12"),
    "nvidia-cudnn-cu12": ("9.10.2.21", "nvidia/cudnn/lib/libcudnn.so.9"),
    "nvidia-cublas": ("13.9.0.1", "nvidia/cu13/lib/libcublas.so.13"),
    "nvidia-cudnn-cu13": ("9.99.0.1", "nvidia/cudnn/lib/libcudnn.so.9"),
    "nvidia-nccl-cu13": ("2.99.1", "nvidia/nccl/lib/libnccl.so.2"),
}
_SDIST = '[build-system]\nrequires = [{requires}]\nbuild-backend = "setuptools.build_meta"\n'
_BUILDS_WITH_TORCH = """\
from setuptools import setup

import torch

with open("{module}.py", "w") as file:
    file.write("built_with = %r\\n" % torch.__version__)
setup(name="{name}", version="1.0", py_modules=["{module}"])
"""


def offer(folder: Path, stack: Stack) -> Path:
    """Write index, wheels and projects for the attacks on `stack` below `folder`; returns it."""
    aside = folder / "aside"
    pypi = [*_pypi(aside / "pypi", stack), *_sources(aside / "pypi")]
    indexes = {
        "pypi": pypi,
        "vendor": _vendor(aside / "vendor", stack),
        "other": [*_other(aside / "other", stack)],
    }
    files = folder / "index" / "files"
    files.mkdir(parents=True)
    for name, paths in indexes.items():
        write_index(folder / "index" / name, paths)
    for path in pypi:
        shutil.copy(path, files / path.name)
    # Two indexes have files of one name and other content: the vendor's are kept apart.
    for name in ("vendor", "other"):
        (files / name).mkdir()
        for path in indexes[name]:
            shutil.copy(path, files / name / path.name)
    _rebuilt(files / "rebuilt", stack)
    _variant(files / "variant", stack)
    _projects(folder / "projects", stack)
    write_channel(folder / "projects", newer=stack.newer, same=stack.torch)
    shutil.rmtree(aside)
    return folder


def write_index(folder: Path, paths: Iterable[Path]) -> None:
    """A PEP 503 page for each distribution, with links to `files/`."""
    pages: dict[str, list[Path]] = {}
    for path in paths:
        page_name = str(canonicalize_name(path.name.removesuffix(".tar.gz").split("-")[0]))
        pages.setdefault(page_name, []).append(path)
    below = "" if folder.name == "pypi" else f"{folder.name}/"
    for name, found in pages.items():
        (folder / name).mkdir(parents=True)
        links = "\n".join(f'<a href="/files/{below}{_quoted(p.name)}">{p.name}</a>' for p in found)
        page = f"<!DOCTYPE html><html><body>\n{links}\n</body></html>\n"
        (folder / name / "index.html").write_text(page, encoding="utf-8")


def _quoted(name: str) -> str:
    return name.replace("+", "%2B")


def _pypi(folder: Path, stack: Stack) -> list[Path]:
    versions = (stack.older, stack.public, stack.newer)
    wheels = [_torch(folder, version, cuda="13.0", needs=_needs(stack)) for version in versions]
    vision = (stack.vision.partition("+")[0], stack.public), (stack.newer_vision, stack.newer)
    for version, torch in vision:
        files = torchvision_files(version)
        needs = [f"torch=={torch}"]
        wheels.append(
            stand_in_wheel(folder, "torchvision", version, requires=needs, files=files, tag=_TAG)
        )
    audio = stack.audio.partition("+")[0]
    for version in dict.fromkeys((audio, "2.12.0")):
        files = {"torchaudio/__init__.py": f'__version__ = "{version}"\n'}
        wheels.append(stand_in_wheel(folder, "torchaudio", version, files=files, tag=_TAG))
    own = dict.fromkeys((stack.triton_version or "3.7.1", _TRITON_NEWER))
    wheels += [_triton(folder, "triton", version) for version in own]
    tritons = {n: v for n, v in _OTHER_TRITONS.items() if n != stack.triton}
    wheels += [_triton(folder, name, version) for name, version in tritons.items()]
    wheels += [_torch(folder, v, name=name, cuda="13.0") for name, v in _OTHER_TORCHES.items()]
    wheels += _cuda_libraries(folder, stack)
    wheels += [stand_in_wheel(folder, name, version) for name, version in _TOO_OLD.items()]
    return [*wheels, *_dependants(folder, stack), *_intruders(folder, stack)]


def _needs(stack: Stack) -> list[str]:
    return [*stack.cuda, "triton"]


def _torch(
    folder: Path,
    version: str,
    *,
    name: str = "torch",
    cuda: str | None = None,
    needs: Iterable[str] = (),
    extra: Mapping[str, str | bytes] | None = None,
) -> Path:
    files = {**torch_files(version, archs=["sm_90"], cuda=cuda), **(extra or {})}
    return stand_in_wheel(folder, name, version, requires=list(needs), files=files, tag=_TAG)


def _triton(folder: Path, name: str, version: str) -> Path:
    return stand_in_wheel(folder, name, version, files=triton_files(version), tag=_TAG)


def _cuda_libraries(folder: Path, stack: Stack) -> list[Path]:
    wheels = []
    for name, (version, library) in _LIBRARIES.items():
        library_files = {library: extension_module("stand_in")}
        offered = dict.fromkeys((version, stack.libraries.get(name, version)))
        wheels += [stand_in_wheel(folder, name, one, files=library_files) for one in offered]
    wheels.append(stand_in_wheel(folder, "cuda-toolkit", "13.9.0", requires=["nvidia-cublas"]))
    files = {"cuda/bindings/__init__.py": '__version__ = "13.9.0"\n'}
    wheels.append(stand_in_wheel(folder, "cuda-bindings", "13.9.0", files=files))
    return wheels


def _vendor(folder: Path, stack: Stack) -> list[Path]:
    """The image's own versions, and newer ones of the same vendor."""
    label = stack.torch.partition("+")[2]
    newer = f"{stack.newer}+{label}" if label else f"{stack.newer}+cu130"
    wheels = [_torch(folder, stack.torch), _torch(folder, newer)]
    files = torchvision_files(stack.vision)
    needs = [f"torch=={stack.public}"]
    wheels.append(
        stand_in_wheel(folder, "torchvision", stack.vision, requires=needs, files=files, tag=_TAG)
    )
    return wheels


def _other(folder: Path, stack: Stack) -> list[Path]:
    return [_torch(folder, version) for version in (stack.other, stack.newer_other)]


def _rebuilt(folder: Path, stack: Stack) -> Path:
    """The image's torch by name and version, with other content: somebody's own build."""
    return _torch(folder, stack.torch, cuda="99.0")


def _variant(folder: Path, stack: Stack) -> Path:
    """The same as a wheel variant: its label is in its name, and the rest in variant.json."""
    wheel = _rebuilt(folder, stack)
    said = {
        "$schema": "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json",
        "default-priorities": {"namespace": ["nvidia"]},
        "variants": {"null": {}},
    }
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr(f"torch-{stack.torch}.dist-info/variant.json", json.dumps(said))
    return wheel.rename(wheel.with_name(f"{wheel.stem}-null.whl"))


def _dependants(folder: Path, stack: Stack) -> list[Path]:
    """Packages that ask for something of a torch stack."""
    url = f"{INDEX}/files/torch-{stack.newer}-{_TAG}.whl"
    asks: dict[str, list[str]] = {
        "needs-torch-same": [f"torch=={stack.public}"],
        "needs-torch-floor": [f"torch>={stack.newer}"],
        "needs-torch-ceiling": [f"torch<={stack.older}"],
        "needs-torch-triple": [f"torch==={stack.public}"],
        "needs-torch-not": [f"torch!={stack.public},!={stack.torch}"],
        "needs-torch-prerelease": [f"torch>={stack.newer}a0"],
        "needs-torch-url": [f"torch @ {url}"],
        "needs-all-exact": [
            f"torch=={stack.newer}",
            f"torchvision=={stack.newer_vision}",
            "torchaudio==2.12.0",
        ],
        "needs-older-exact": [f"torch=={stack.older}"],
        "needs-vision": ["torchvision"],
        "needs-newer-vision": [f"torchvision=={stack.newer_vision}"],
        "needs-audio": ["torchaudio"],
        "needs-triton": ["triton"],
        "needs-newer-triton": [f"triton>={_TRITON_NEWER}"],
        "needs-cublas-cu12": ["nvidia-cublas-cu12"],
        "needs-cudnn-cu12": ["nvidia-cudnn-cu12"],
        "needs-newer-cudnn": ["nvidia-cudnn-cu13>=9.99"],
        "needs-newer-nccl": ["nvidia-nccl-cu13>=2.99"],
        "needs-cuda-toolkit": ["cuda-toolkit"],
        "needs-deeply": ["needs-between"],
        "needs-between": ["needs-torch-floor"],
        "needs-old-typing": ["typing-extensions<4.6"],
    }
    wheels = [_dependant(folder, name, needs) for name, needs in asks.items()]
    wheels += [_dependant(folder, "needs-torch", ["torch"], version=v) for v in ("1.0", "2.0")]
    # An older version of it is content with the image's torch: a resolver goes back to it.
    wheels.append(_dependant(folder, "needs-more-later", ["torch"], version="1.0"))
    newer = [f"torch>={stack.newer}"]
    wheels.append(_dependant(folder, "needs-more-later", newer, version="2.0"))
    wheels.append(_dependant(folder, "needs-more-ever", ["torch"], version="0.1"))
    for release in ("1.0", "1.1", "1.2", "2.0"):
        wheels.append(_dependant(folder, "needs-more-ever", newer, version=release))
    extra = [f"torch>={stack.newer}; extra == 'gpu'"]
    wheels.append(_dependant(folder, "needs-by-extra", extra, extras=["gpu"]))
    return wheels


def _dependant(
    folder: Path,
    name: str,
    needs: list[str],
    *,
    version: str = "1.0",
    extras: Iterable[str] = (),
) -> Path:
    module = name.replace("-", "_")
    files: dict[str, str | bytes] = {f"{module}.py": f'__version__ = "{version}"\n'}
    return stand_in_wheel(folder, name, version, requires=needs, extras=list(extras), files=files)


def _intruders(folder: Path, stack: Stack) -> list[Path]:
    """Wheels whose own files reach into a torch stack; none of them declares a dependency."""
    other = str(torch_files(stack.newer, archs=["sm_90"], cuda="13.0")["torch/version.py"])
    hides = "import sys; sys.path.insert(0, '/opt/hidden')\n"
    finder = "import intrudes_finder\n"
    intrusions: dict[str, Mapping[str, str | bytes]] = {
        "bundles-version": {"torch/version.py": other},
        "bundles-torch": torch_files(stack.newer, archs=["sm_90"], cuda="13.0"),
        "bundles-triton": triton_files(_TRITON_NEWER),
        "adds-to-torch": {"torch/_added_by_somebody.py": "added = True\n"},
        "adds-extension": {
            "torch/version.cpython-311-x86_64-linux-gnu.so": extension_module("version"),
        },
        "adds-cudnn": {"nvidia/cudnn/lib/libcudnn_added.so.9": extension_module("added")},
        "hides-torch": {"hides_torch.pth": hides, "hides_torch.py": ""},
        "redirects-torch": {
            "a_redirects_torch.pth": finder,
            "intrudes_finder.py": _FINDER.replace("VERSION", repr(stack.newer)),
        },
        "plugs-into-torch": {
            "plugs_into_torch.py": "def load():\n    import torch\n    torch.matmul = None\n",
            "plugs_into_torch-1.0.dist-info/entry_points.txt": "[torch.backends]\n"
            "plugged = plugs_into_torch:load\n",
        },
        "redirects-below": {
            "a_redirects_below.pth": "import intrudes_below\n",
            "intrudes_below.py": _FINDER.replace("VERSION", repr(stack.newer))
            .replace('"torch"', '"torch.nn.functional"')
            .replace("torch/__init__.py", "torch/nn/functional.py"),
        },
        "preloads-below": {
            "zz_preloads_below.pth": "import sys, types; "
            "sys.modules['torch.nn.functional'] = types.ModuleType('torch.nn.functional')\n",
        },
        "preloads-torch": {
            "zz_preloads_torch.pth": "import sys, types; m = types.ModuleType('torch'); "
            f"m.__version__ = '{stack.newer}'; m.__file__ = '/opt/preloaded/torch/__init__.py'; "
            "m.__spec__ = None; sys.modules['torch'] = m\n",
        },
        "sitecustomizes": {
            "sitecustomize.py": "import sys\nsys.path.insert(0, '/opt/hidden')\n",
        },
        "bytecode-package": {"torch/nn/functional/__init__.pyc": _unchecked("relu = None\n")},
        "optimized-bytecode": {
            "torch/__pycache__/version.cpython-311.opt-1.pyc": _unchecked(other, optimize=1),
        },
        "is-the-guard": {
            "warpfront_guard/__init__.py": "",
            "warpfront_guard/startup.py": "def start(*_):\n    pass\n",
            "warpfront_guard/verification.py": "def verify(*_, **__):\n    return []\n",
        },
        "patches-loaders": {
            "zz_patches_loaders.pth": "import patches_loaders\n",
            "patches_loaders.py": _PATCH,
        },
        "replaces-python": {
            "replaces_python-1.0.data/scripts/python3": "#!/bin/sh\n"
            'exec -a /opt/venv/bin/python3 "$(readlink -f /opt/venv/bin/python)" "$@"\n',
        },
        "torch-module": {"torch.py": f'__version__ = "{stack.newer}"\n'},
    }
    wheels = [stand_in_wheel(folder, n, "1.0", files=files) for n, files in intrusions.items()]
    return [*wheels, _stale_bytecode(folder, other)]


_FINDER = '''\
"""Stands before all finders, as some editable installs do."""
import importlib.abc
import importlib.machinery
import sys


class Loader(importlib.abc.Loader):
    def exec_module(self, module):
        module.__version__ = VERSION
        module.__file__ = "/opt/redirected/torch/__init__.py"


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            return importlib.machinery.ModuleSpec(name, Loader(), origin="/opt/redirected")
        return None


sys.meta_path.insert(0, Finder())
'''


_PATCH = """\
import importlib.machinery
real = importlib.machinery.SourceFileLoader.get_code
def get_code(self, name):
    if name == "torch.version":
        return compile("__version__ = '9'; cuda = hip = None", self.path, "exec")
    return real(self, name)
importlib.machinery.SourceFileLoader.get_code = get_code
"""


def _unchecked(source: str, optimize: int = 0) -> bytes:
    """Byte code that Python takes without a look at the source (PEP 552, unchecked hash)."""
    import importlib._bootstrap_external as external

    code = compile(source, "torch/version.py", "exec", optimize=optimize)
    return bytes(external._code_to_hash_pyc(code, bytes(8), checked=False))  # type: ignore[attr-defined]


def _stale_bytecode(folder: Path, source: str) -> Path:
    """The source beside it stays byte for byte what it was."""
    files: dict[str, str | bytes] = {
        "torch/__pycache__/version.cpython-311.pyc": _unchecked(source)
    }
    return stand_in_wheel(folder, "bundles-bytecode", "1.0", files=files)


def _sources(folder: Path) -> list[Path]:
    """sdists whose build imports torch: declared, and not declared as flash-attn's is."""
    torch = '"setuptools", "torch"'
    return [
        _sdist(folder, "builds-with-torch", torch),
        _sdist(folder, "imports-torch-unasked", '"setuptools"'),
    ]


def _sdist(folder: Path, name: str, requires: str) -> Path:
    module = name.replace("-", "_")
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "pyproject.toml": _SDIST.format(requires=requires),
        "setup.py": _BUILDS_WITH_TORCH.format(name=name, module=module),
    }
    path = folder / f"{module}-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{module}-1.0/{file}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def _projects(folder: Path, stack: Stack) -> None:
    """Folders with a pyproject.toml, requirements files, and a torch unpacked by hand."""
    build = _SDIST.format(requires='"setuptools"')
    project = (
        '[project]\nname = "{name}"\nversion = "0.1"\nrequires-python = ">=3.11"\n'
        'dependencies = ["{needs}"]\n\n[tool.setuptools]\npy-modules = []\n'
    )
    bare = project.replace("\n\n[tool.setuptools]\npy-modules = []", "")
    written = {
        "editable/pyproject.toml": build + project.format(name="an-app", needs="needs-torch"),
        "wants-newer/pyproject.toml": build
        + project.format(name="wants-newer", needs=f"torch>={stack.newer}"),
        "poetry-newer/pyproject.toml": bare.format(
            name="poetry-newer", needs=f"torch=={stack.newer}"
        )
        + '\n[tool.poetry]\npackage-mode = false\n\n[[tool.poetry.source]]\nname = "here"\n'
        f'url = "{INDEX}/pypi/"\npriority = "primary"\n\n[tool.pdm]\ndistribution = false\n\n'
        f'[[tool.pdm.source]]\nname = "pypi"\nurl = "{INDEX}/pypi/"\n',
        "uv-project/pyproject.toml": bare.format(name="uv-project", needs="torch"),
        "uv-newer/pyproject.toml": bare.format(name="uv-newer", needs=f"torch>={stack.newer}"),
        "requirements.txt": f"--extra-index-url {INDEX}/other/\n-c other-constraints.txt\n"
        f"torch=={stack.other}\n",
        "other-constraints.txt": f"torch=={stack.other}\n",
        "newer.txt": f"torch=={stack.newer}\n",
        "empty.txt": "",
        "hashed.txt": "needs-torch==1.0 --hash=sha256:HASH\n",
        "sources/torch/setup.py": "from setuptools import setup\n"
        f'setup(name="torch", version="{stack.newer}a0+git0", packages=["torch"])\n',
        "sources/torch/torch/__init__.py": f'__version__ = "{stack.newer}a0+git0"\n',
        "sources/same/setup.py": "from setuptools import setup\n"
        f'setup(name="torch", version="{stack.torch}", packages=["torch"])\n',
        "sources/same/torch/__init__.py": f'__version__ = "{stack.torch}"\n',
    }
    for path, text in written.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    shadow = torch_files(stack.newer, archs=["sm_90"], cuda="13.0")
    for path, content in shadow.items():
        target = folder / "shadow" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
