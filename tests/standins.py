"""Stand-ins for what cannot be had everywhere: small wheels with the real names and metadata shape
of the vendors' (and "stand-in" in their summaries), and a package index on loopback that can be
told to misbehave.

The shapes: torch 2.8.0+rocm6.4 needs pytorch-triton-rocm, which owns `triton/`; from ROCm 7.14
torch needs the `rocm` distribution, an sdist, whose extras bring the `rocm-sdk-*` wheels.

What the second is modelled on, as the index of pytorch.org was in October 2026:
- demands of torch 2.14.1+rocm7.14, `rocm` 7.14.0.post1 over parts of 7.14.0, triton-rocm 3.8.0:
  AIwork4me/Qwen3.8-GDN-Zero-JIT-RCA docs/02-environment.md @33c8bde9 and
  phase2/pr1/merge-readiness/fresh-image-refresh/setup_env_fresh_image.sh @bdc755bf
- the 28 names of the index, none of them rocm-sdk-devel: pytorch/test-infra#8436, #8445
- the sdist's files, extras and way to find its target: ROCm/TheRock @89553ce,
  build_tools/packaging/python/templates/rocm; what the device wheels demand: rocm-sdk-device there;
  one rocm-sdk-libraries for all targets: build_tools/_therock_utils/py_packaging.py, `kpack_split`
- a post release of `rocm` alone: ROCm/TheRock#7362, and docs/packaging/versioning.md, "Post
  releases", of a later commit
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import io
import json
import struct
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote

from loopback import running
from packaging.utils import canonicalize_name
from stand_in_torch import torch_files, torchvision_files, triton_files

PLATFORM = "manylinux_2_28_x86_64"
ROCM_ARCHS = (
    "gfx900",
    "gfx906",
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx1030",
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1200",
    "gfx1201",
)
ROCM_DEVICES = (
    "gfx908",
    "gfx90a",
    "gfx942",
    "gfx950",
    "gfx1010",
    "gfx1011",
    "gfx1012",
    *(f"gfx103{minor}" for minor in range(7)),
    "gfx1100",
    "gfx1101",
    "gfx1102",
    "gfx1103",
    "gfx1150",
    "gfx1151",
    "gfx1152",
    "gfx1153",
    "gfx1200",
    "gfx1201",
    "gfx1250",
)
ROCM_RELEASES: Mapping[str, str] = {"7.14.0": "7.14.0", "7.14.0.post1": "7.14.0"}
_JSON = "application/vnd.pypi.simple.v1+json"
_LOGIN_PAGE = b"<html><form action='/login'>Sign in</form></html>"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def stand_in_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    extras: Sequence[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    tag: str = "py3-none-any",
    build: str = "",
) -> Path:
    """A valid wheel in `folder`: `files` (path -> content), METADATA, WHEEL and RECORD. Same input,
    same bytes.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Summary: A stand-in for {name}, for tests only"]
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    wheel = ["Wheel-Version: 1.0", "Generator: stand-in", "Root-Is-Purelib: false", f"Tag: {tag}"]
    content = dict(files or {})
    content[f"{info}/METADATA"] = "\n".join(metadata) + "\n"
    content[f"{info}/WHEEL"] = "\n".join(wheel) + "\n"
    record = "".join(f"{path},{_record(data)}\n" for path, data in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}{'-' + build if build else ''}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in content.items():
            archive.writestr(zipfile.ZipInfo(member, _EPOCH), data)
    return path


def stand_in_variants(
    folder: Path,
    name: str,
    version: str,
    table: Mapping[str, object],
    *,
    requires: Sequence[str] = (),
    files: Mapping[str, str | bytes] | None = None,
    tag: str = f"cp311-cp311-{PLATFORM}",
) -> dict[str, Path]:
    """A wheel for each variant of `table`, which is what the index says of them and lies beside
    them; by label. Each holds a module `label` too, so that one is not another.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    found = {}
    variants = table["variants"]
    assert isinstance(variants, Mapping)
    for label, properties in variants.items():
        own = {**table, "variants": {label: properties}}
        inside = {**(files or {}), f"{name}/label.py": repr(label)}
        inside[f"{stem}.dist-info/variant.json"] = json.dumps(own)
        plain = stand_in_wheel(folder, name, version, requires=requires, files=inside, tag=tag)
        found[label] = plain.rename(folder / f"{stem}-{tag}-{label}.whl")
    (folder / f"{stem}-variants.json").write_text(json.dumps(table), "utf-8")
    return found


def rocm64_stand_ins(folder: Path, *, python: str = "3.11") -> Path:
    """torch 2.8.0+rocm6.4, torchvision, torchaudio, pytorch-triton-rocm; returns `folder`."""
    tag = _cpython_tag(python)
    triton = (
        'pytorch-triton-rocm==3.4.0; platform_system == "Linux" and platform_machine == "x86_64"'
    )
    torch = torch_files("2.8.0+rocm6.4", hip="6.4.43482", archs=ROCM_ARCHS, python=python)
    stand_in_wheel(folder, "torch", "2.8.0+rocm6.4", requires=[triton], files=torch, tag=tag)
    _torch_companions(folder, "rocm6.4", torch="2.8.0", vision="0.23.0", audio="2.8.0", tag=tag)
    files = triton_files("3.4.0", python=python)
    stand_in_wheel(folder, "pytorch-triton-rocm", "3.4.0", files=files, tag=tag)
    return folder


def rocm72_stand_ins(folder: Path, *, python: str = "3.14") -> Path:
    """torch 2.12.1+rocm7.2 and triton-rocm; returns `folder`."""
    tag = _cpython_tag(python)
    archs = (*ROCM_ARCHS, "gfx950")
    torch = torch_files("2.12.1+rocm7.2", hip="7.2.53211", archs=archs, python=python)
    needs = ['triton-rocm==3.7.1; platform_system == "Linux"']
    stand_in_wheel(folder, "torch", "2.12.1+rocm7.2", requires=needs, files=torch, tag=tag)
    files = triton_files("3.7.1", python=python)
    stand_in_wheel(folder, "triton-rocm", "3.7.1", files=files, tag=tag)
    return folder


def rocm714_stand_ins(
    folder: Path, *, python: str = "3.11", rocm: Mapping[str, str] = ROCM_RELEASES
) -> Path:
    """torch 2.14.1+rocm7.14 with triton-rocm, and for each release of the `rocm` sdist the version
    of the rocm-sdk wheels that it demands; returns `folder`.
    """
    tag = _cpython_tag(python)
    needs = [
        "rocm[device-all,libraries]==7.14.*",
        'triton-rocm~=3.8.0; platform_system == "Linux" and python_version < "3.15"',
    ]
    archs = (*ROCM_ARCHS, "gfx950")
    torch = torch_files("2.14.1+rocm7.14", hip="7.14.60850", archs=archs, python=python)
    stand_in_wheel(folder, "torch", "2.14.1+rocm7.14", requires=needs, files=torch, tag=tag)
    _torch_companions(folder, "rocm7.14", torch="2.14.1", vision="0.29.1", audio="2.11.0", tag=tag)
    files = triton_files("3.8.0", python=python)
    stand_in_wheel(folder, "triton-rocm", "3.8.0", files=files, tag=tag)
    for version, parts in rocm.items():
        stand_in_rocm_sdist(folder, version, parts=parts)
    for parts in set(rocm.values()):
        _rocm_sdk(folder, parts)
    return folder


# torch's own code of a family lies in a package of its own, which each member's package demands
# (ROCm/pytorch#3518: amd-torch-device-gfx11 and -gfx12-0 beside the targets').
ROCM10_FAMILIES: Mapping[str, tuple[str, ...]] = {
    "gfx11": tuple(one for one in ROCM_DEVICES if one.startswith("gfx11")),
    "gfx12-0": ("gfx1200", "gfx1201"),
}


def rocm10_stand_ins(
    folder: Path, *, python: str = "3.13", devices: Sequence[str] = ROCM_DEVICES
) -> Path:
    """What AMD's index of ROCm 10.0.0 holds: torch 2.13.0 and torchvision 0.28.0 with an extra for
    each device, torchaudio 2.11.0.2 without, the packages that the extras name, `rocm` and its
    rocm-sdk wheels; returns `folder`. Names, extras, demands and archive places as
    ROCm/rocm-systems shared/kpack/python/rocm_kpack/wheel_splitter.py @2d9bbf45 writes them and
    ROCm/TheRock#7839 installs them; host wheels are `linux_x86_64` there.
    """
    label, tag = "rocm10.0.0", f"cp{python.replace('.', '')}"
    tag = f"{tag}-{tag}-linux_x86_64"
    host = {
        "torch": (
            "2.13.0",
            ["rocm-bootstrap", "rocm[libraries]==10.0.0", f"triton==3.7.1+{label}"],
        ),
        "torchvision": ("0.28.0", [f"torch==2.13.0+{label}"]),
    }
    files = {
        "torch": torch_files(f"2.13.0+{label}", hip="7.15.26333", archs=devices, python=python),
        "torchvision": torchvision_files(f"0.28.0+{label}"),
    }
    for name, (version, needs) in host.items():
        full = f"{version}+{label}"
        _device_packages(folder, name, full, devices, tag)
        extras = {f"device-{one}": [f"amd-{name}-device-{one}=={full}"] for one in devices}
        extras["device-all"] = [line for lines in extras.values() for line in lines]
        demands = [f'{one}; extra == "{extra}"' for extra, all_ in extras.items() for one in all_]
        stand_in_wheel(
            folder,
            name,
            full,
            requires=[*needs, *demands],
            extras=list(extras),
            files=files[name],
            tag=tag,
        )
    stand_in_wheel(
        folder, "torchaudio", f"2.11.0.2+{label}", files=_module("torchaudio", "x"), tag=tag
    )
    stand_in_wheel(
        folder, "triton", f"3.7.1+{label}", files=triton_files("3.7.1", python=python), tag=tag
    )
    stand_in_wheel(folder, "rocm-bootstrap", "0.3.0", files=_module("rocm_bootstrap", "0.3.0"))
    stand_in_rocm_sdist(folder, "10.0.0", parts="10.0.0")
    _rocm_sdk(folder, "10.0.0")
    return folder


def _device_packages(
    folder: Path, name: str, version: str, devices: Sequence[str], tag: str
) -> None:
    """amd-<name>-device-<target> for each device, and for torch those of families."""
    families = ROCM10_FAMILIES if name == "torch" else {}
    for target in devices:
        own = f"amd-{name}-device"
        needs = [f"{name}=={version}", f"rocm-sdk-device-{target}"]
        needs += [f"{own}-{one}=={version}" for one, all_ in families.items() if target in all_]
        archive = {f"{name}/.kpack/{name}_{target}.kpack": stand_in_kpack({target: 3})}
        stand_in_wheel(folder, f"{own}-{target}", version, requires=needs, files=archive, tag=tag)
    for family in families:
        needs = [f"{name}=={version}"]
        archive = {f"{name}/.kpack/{name}_{family}.kpack": stand_in_kpack({family: 1})}
        own = f"amd-{name}-device-{family}"
        stand_in_wheel(folder, own, version, requires=needs, files=archive, tag=tag)


def stand_in_kpack(kernels: Mapping[str, int], *, listed: Sequence[str] = ()) -> bytes:
    """An archive as `rocm_kpack` writes it: header, blobs from byte 64 on, and the table last, with
    so many code objects for each architecture. `listed` are architectures without any.
    """
    objects = [(arch, number) for arch, count in kernels.items() for number in range(count)]
    blobs = b"".join(
        f"\x7fELF{arch}#{number}".encode().ljust(64, b"\0") for arch, number in objects
    )
    toc: dict[str, dict[str, object]] = {}
    for ordinal, (arch, number) in enumerate(objects):
        entry = {"type": "hsaco", "ordinal": ordinal, "original_size": 64}
        toc.setdefault(f"lib/libtorch_hip.so#{number}", {})[arch] = entry
    archs = [*kernels, *listed]
    table = {
        "format_version": 1,
        "group_name": "torch",
        "gfx_arch_family": archs[0] if archs else "",
        "gfx_arches": archs,
        "compression_scheme": "none",
        "blobs": [{"offset": 64 + 64 * one, "size": 64} for one in range(len(objects))],
        "toc": toc,
    }
    head = struct.pack("<4sIQ", b"KPAK", 1, 64 + len(blobs)).ljust(64, b"\0")
    return head + blobs + _packed(table)


def _packed(value: object) -> bytes:
    """MessagePack, of the few kinds that an archive's table has."""
    if isinstance(value, str):
        raw = value.encode()
        head = bytes([0xA0 | len(raw)]) if len(raw) < 32 else struct.pack(">BB", 0xD9, len(raw))
        return head + raw
    if isinstance(value, int):
        return bytes([value]) if value < 128 else struct.pack(">BI", 0xCE, value)
    if isinstance(value, list):
        return struct.pack(">BH", 0xDC, len(value)) + b"".join(map(_packed, value))
    assert isinstance(value, dict)
    pairs = b"".join(_packed(key) + _packed(one) for key, one in value.items())
    return struct.pack(">BH", 0xDE, len(value)) + pairs


def _rocm_sdk(folder: Path, version: str) -> None:
    """core, libraries, and the device code of each target, which lies among the libraries."""
    tag = f"py3-none-{PLATFORM}"
    for name in ("rocm-sdk-core", "rocm-sdk-libraries"):
        files = _module("_" + name.replace("-", "_"), version)
        stand_in_wheel(folder, name, version, files=files, tag=tag)
    for target in ROCM_DEVICES:
        archive = stand_in_kpack({target: 2})
        files = {f"_rocm_sdk_libraries/.kpack/blas_lib_{target}.kpack": archive}
        needs = [f"rocm-sdk-libraries=={version}"]
        name = f"rocm-sdk-device-{target}"
        stand_in_wheel(folder, name, version, requires=needs, files=files, tag=tag)


def stand_in_rocm_sdist(
    folder: Path, version: str = "7.14.0", *, parts: str = "7.14.0", mark: Path | None = None
) -> Path:
    """`rocm-<version>.tar.gz`, a setuptools project that asks the machine for its GPU when it is
    built, and whose PKG-INFO was written on a machine without one. `parts` is the version of the
    wheels it brings; its setup.py leaves `mark`, if one is given, wherever it runs.
    """
    facts = {"VERSION": version, "PARTS": parts, "DEVICES": ROCM_DEVICES}
    told = "".join(f"{name} = {value!r}\n" for name, value in facts.items())
    told += f"open({str(mark)!r}, 'w').close()\n" if mark else ""
    pkg_info = _rocm_pkg_info(version, parts)
    files = {
        "PKG-INFO": pkg_info,
        "pyproject.toml": '[build-system]\nrequires = ["setuptools>=70.2.0"]\n'
        'build-backend = "setuptools.build_meta"\n',
        "setup.py": told + _ROCM_SETUP,
        "src/rocm_sdk/__init__.py": f'__version__ = "{version}"\n',
        "src/rocm_sdk/__main__.py": 'def main() -> None:\n    print("a stand-in")\n',
        "src/rocm.egg-info/PKG-INFO": pkg_info,
        "src/rocm.egg-info/entry_points.txt": "[console_scripts]\n"
        "rocm-sdk = rocm_sdk.__main__:main\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rocm-{version}.tar.gz"
    with (
        gzip.GzipFile(path, "wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, text in files.items():
            member = tarfile.TarInfo(f"rocm-{version}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def _rocm_pkg_info(version: str, parts: str) -> str:
    every = [f"rocm-sdk-device-{target}=={parts}" for target in ROCM_DEVICES]
    extras = {
        "libraries": [f"rocm-sdk-libraries=={parts}"],
        "device": [f"rocm-sdk-device-gfx1010=={parts}"],
        "devel": [f"rocm-sdk-devel=={parts}"],
        **{f"device-{target}": [one] for target, one in zip(ROCM_DEVICES, every, strict=True)},
        "device-all": every,
    }
    lines = ["Metadata-Version: 2.4", "Name: rocm", f"Version: {version}"]
    lines += [f"Requires-Dist: rocm-sdk-core=={parts}"]
    for extra, demands in extras.items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f'Requires-Dist: {one}; extra == "{extra}"' for one in demands]
    return "\n".join([*lines, "Dynamic: provides-extra", "Dynamic: requires-dist"]) + "\n"


_ROCM_SETUP = """\
import os
import subprocess
from setuptools import find_packages, setup

family = os.environ.get("ROCM_SDK_TARGET_FAMILY")
if family is None:
    try:
        family = subprocess.check_output(["offload-arch"], text=True).split()[0]
    except OSError:
        family = "gfx1010"
if family not in DEVICES:
    raise ValueError(f"{family} is not available in the distribution")
every = [f"rocm-sdk-device-{one}=={PARTS}" for one in DEVICES]
setup(
    name="rocm",
    version=VERSION,
    package_dir={"": "src"},
    packages=find_packages("src"),
    entry_points={"console_scripts": ["rocm-sdk = rocm_sdk.__main__:main"]},
    install_requires=[f"rocm-sdk-core=={PARTS}"],
    extras_require={
        "libraries": [f"rocm-sdk-libraries=={PARTS}"],
        "device": [f"rocm-sdk-device-{family}=={PARTS}"],
        "devel": [f"rocm-sdk-devel=={PARTS}"],
        **{f"device-{one}": [need] for one, need in zip(DEVICES, every)},
        "device-all": every,
    },
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """How one kind of request goes wrong, `times` times (None = always).

    `status` answers with it (and `retry_after` seconds); `hang_seconds` waits before answering;
    `truncate_at` promises all bytes and sends so many; `corrupt` changes the last byte; `login`
    sends a page with a form; `bytes_per_second` sends slowly.
    """

    status: int = 0
    retry_after: int | None = None
    hang_seconds: float = 0.0
    truncate_at: int | None = None
    corrupt: bool = False
    login: bool = False
    bytes_per_second: int | None = None
    times: int | None = None


@dataclass(slots=True, kw_only=True)
class Index:
    """A running index. `url` is what a matrix would name; `requests` are (path, Range header).

    `hash_name` is the hash that its pages give ("" = none), for all files but those of `unhashed`;
    `json` serves them as PEP 691 JSON, `ranges` says whether Range is obeyed. `root` is the page
    at `url` itself ("" = none); `pages` are texts of whole pages, by distribution.
    """

    folder: Path
    name: str
    port: int = 0
    ranges: bool = True
    hash_name: str = "sha256"
    unhashed: str = ""
    json: bool = False
    root: str = ""
    pages: Mapping[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, Fault, list[int]]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/whl/{self.name}"

    def fail(self, part: str, fault: Fault) -> None:
        """From now on requests whose path contains `part` go wrong."""
        self.faults.append((part, fault, [0]))

    def heal(self) -> None:
        self.faults.clear()

    def fault_for(self, path: str) -> Fault:
        for part, fault, used in self.faults:
            if part in path and (fault.times is None or used[0] < fault.times):
                used[0] += 1
                return fault
        return Fault()

    def downloads(self, filename: str) -> list[str]:
        """The Range headers ("" = from the start) of the requests for a file."""
        return [range_ for path, range_ in self.requests if path.endswith("/" + filename)]


@contextlib.contextmanager
def serve_index(folder: Path, *, name: str = "rocm6.4") -> Iterator[Index]:
    """The wheels and sdists of `folder` as a PEP 503 index on a loopback port, for as long as the
    block lasts.
    """
    index = Index(folder=folder, name=name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(index))
    server.daemon_threads = True
    server.block_on_close = False
    index.port = server.server_port
    with running(server):
        try:
            yield index
        finally:
            index.stopping.set()


def _handler(index: Index) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        served = index

    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a body waits until the client has acknowledged its head
    served: Index

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep quiet: `Index.requests` has it all."""

    def _answer(self, *, with_body: bool) -> None:
        path = unquote(self.path)
        if with_body:
            self.served.requests.append((path, self.headers.get("Range", "")))
        fault = self.served.fault_for(path)
        if fault.hang_seconds:
            self.served.stopping.wait(fault.hang_seconds)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if fault.status:
                self._refuse(fault)
            elif fault.login:
                self._send(200, _LOGIN_PAGE, fault, with_body=with_body)
            else:
                self._serve(path, fault, with_body=with_body)

    def _refuse(self, fault: Fault) -> None:
        self.send_response(fault.status)
        if fault.retry_after is not None:
            self.send_header("Retry-After", str(fault.retry_after))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _serve(self, path: str, fault: Fault, *, with_body: bool) -> None:
        prefix = f"/whl/{self.served.name}/"
        rest = path.removeprefix(prefix)
        file = self.served.folder / rest
        if self.served.root and path.rstrip("/") == prefix.rstrip("/"):
            self._send(200, self.served.root.encode(), fault, with_body=with_body)
        elif path.startswith(prefix) and rest.endswith("/"):
            self._page(rest.strip("/"), fault, with_body=with_body)
        elif path.startswith(prefix) and "/" not in rest and file.is_file():
            self._file(file.read_bytes(), fault, with_body=with_body)
        else:
            self._refuse(Fault(status=404))

    def _page(self, name: str, fault: Fault, *, with_body: bool) -> None:
        files = [
            path
            for path in sorted(self.served.folder.iterdir())
            if _distribution(path) == name and path.suffix != ".metadata"
        ]
        if name in self.served.pages:
            self._send(200, self.served.pages[name].encode(), fault, with_body=with_body)
            return
        if not files:
            self._refuse(Fault(status=404))
            return
        if self.served.json:
            entries = [self._json_entry(path) for path in files]
            body = json.dumps({"meta": {"api-version": "1.1"}, "name": name, "files": entries})
            self._send(200, body.encode(), fault, with_body=with_body, kind=_JSON)
            return
        lines = [self._anchor(path) for path in files]
        page = "<!DOCTYPE html><html><body>\n" + "\n".join(lines) + "\n</body></html>\n"
        self._send(200, page.encode(), fault, with_body=with_body)

    def _json_entry(self, path: Path) -> dict[str, object]:
        data, name = path.read_bytes(), self.served.hash_name
        return {
            "filename": path.name,
            "url": f"/whl/{self.served.name}/{quote(path.name)}",
            "hashes": {name: hashlib.new(name, data).hexdigest()} if name else {},
            "size": len(data),
            **({"core-metadata": True} if _has_metadata(path) else {}),
        }

    def _anchor(self, path: Path) -> str:
        name = "" if fnmatch(path.name, self.served.unhashed) else self.served.hash_name
        digest = hashlib.new(name, path.read_bytes()).hexdigest() if name else ""
        fragment = f"#{name}={digest}" if name else ""
        href = f"/whl/{self.served.name}/{quote(path.name)}{fragment}"
        metadata = ' data-core-metadata="true"' if _has_metadata(path) else ""
        return f'<a href="{href}"{metadata}>{path.name}</a>'

    def _file(self, data: bytes, fault: Fault, *, with_body: bool) -> None:
        kind = "application/octet-stream"
        if fault.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        wanted = self.headers.get("Range", "")
        if not (self.served.ranges and wanted.startswith("bytes=")):
            self._send(200, data, fault, with_body=with_body, kind=kind)
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) if first and last else len(data) - 1, len(data) - 1)
        if start >= len(data):
            self._refuse(Fault(status=416))
            return
        headers = {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
        body = data[start : end + 1]
        self._send(206, body, fault, with_body=with_body, kind=kind, headers=headers)

    def _send(
        self,
        status: int,
        body: bytes,
        fault: Fault,
        *,
        with_body: bool,
        kind: str = "text/html",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.served.ranges:
            self.send_header("Accept-Ranges", "bytes")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if not with_body:
            return
        self._write(body if fault.truncate_at is None else body[: fault.truncate_at], fault)
        if fault.truncate_at is not None:
            self.close_connection = True

    def _write(self, body: bytes, fault: Fault) -> None:
        if fault.bytes_per_second is None:
            self.wfile.write(body)
            return
        step = max(fault.bytes_per_second // 20, 1)
        for start in range(0, len(body), step):
            if self.served.stopping.is_set():
                return
            self.wfile.write(body[start : start + step])
            self.wfile.flush()
            time.sleep(0.05)


def _distribution(path: Path) -> str:
    return canonicalize_name(path.name.removesuffix(".tar.gz").split("-")[0])


def _has_metadata(path: Path) -> bool:
    """Whether a file of PEP 658 lies with the wheel."""
    return path.with_name(f"{path.name}.metadata").is_file()


def _record(data: str | bytes) -> str:
    raw = data.encode() if isinstance(data, str) else data
    digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
    return f"sha256={digest},{len(raw)}"


def _cpython_tag(python: str) -> str:
    name = f"cp{python.replace('.', '')}"
    return f"{name}-{name}-{PLATFORM}"


def _module(package: str, version: str) -> dict[str, str | bytes]:
    return {f"{package}/__init__.py": f'__version__ = "{version}"\n'}


def _torch_companions(
    folder: Path, label: str, *, torch: str, vision: str, audio: str, tag: str
) -> None:
    """torchvision pins torch exactly up to 0.29.0; torchaudio 2.11.0 says nothing of it."""
    pin = f"torch=={torch}" if vision != "0.29.1" else "torch>=2.14.0"
    for name, version in (("torchvision", vision), ("torchaudio", audio)):
        full = f"{version}+{label}"
        requires = [] if version == "2.11.0" else [pin]
        files = torchvision_files(full) if name == "torchvision" else _module(name, full)
        stand_in_wheel(folder, name, full, requires=requires, files=files, tag=tag)
