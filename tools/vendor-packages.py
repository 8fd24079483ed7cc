#!/usr/bin/env python3
"""Write which packages of PyPI are built for CUDA alone, from their files.

    tools/vendor-packages.py [--add DISTRIBUTION ...]

Each distribution of src/warpfront_port/data/vendor-packages.txt is read again, or each that --add
names is read alone: the newest wheel for Linux on x86-64 (its file names, libraries and
requirements), or the newest source where there is no wheel. A wheel is CUDA's where its libraries
name CUDA's and none names HIP's, or where it requires NVIDIA's packages, one named by its CUDA
(`-cu12`) or one of these distributions. A source is
CUDA's where it has CUDAExtension and .cu files, and its setup.py names neither HIP nor ROCm. A
distribution with libraries or an arm for ROCm too has the first version of them. Rows with a
repository or a page stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

OUTPUT = Path(__file__).parents[1] / "src/warpfront_port/data/vendor-packages.txt"
HEAD = """\
# Packages that NVIDIA's devices alone run, and what shows it. Made by tools/vendor-packages.py from
# files on PyPI (2026-12-01); rows with a repository or page were read there, or are labelled in
# docs/results/scan-verdicts.md. Other languages' packages have the ending of its files before them.
# distribution, its modules, the version read, the first version for ROCm (- for none), the evidence
"""
INDEX = "https://pypi.org/simple/{}/"
WHEEL = re.compile(r"(?:manylinux\w*|linux)_x86_64\.whl\Z|manylinux1_x86_64\.whl\Z|none-any\.whl\Z")
CUDA = re.compile(
    rb"lib(?:cudart|cublas(?:Lt)?|cuda|nvrtc|cudnn|cufft|curand)\.so[\w.]*|__cudaRegister\w+"
)
HIP = re.compile(rb"lib(?:amdhip64|hipblas(?:lt)?|rocblas)\.so|__hipRegister\w+")
NVIDIAS = re.compile(r"(?:nvidia|cuda)-|[\w-]+-cu(?:da)?-?\d{2,3}x?\Z")
LARGEST = 400_000_000


def files_of(name: str) -> list[Mapping[str, Any]]:
    accept = {"Accept": "application/vnd.pypi.simple.v1+json"}
    request = urllib.request.Request(INDEX.format(name), headers=accept)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (INDEX is https)
            files = json.load(answer)["files"]
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        files = []
    versions = [(version_of(one), number, one) for number, one in enumerate(files)]
    return [one for version, _, one in sorted(v for v in versions if v[0]) if version]


def version_of(entry: Mapping[str, Any]) -> Version | None:
    parts = entry["filename"].removesuffix(".tar.gz").split("-")
    text = parts[1] if entry["filename"].endswith(".whl") else parts[-1]
    try:
        version = Version(text)
    except InvalidVersion:
        return None
    return None if version.is_prerelease or entry.get("yanked") else version


@contextmanager
def opened(entry: Mapping[str, Any]) -> Iterator[Any]:
    with tempfile.TemporaryFile() as file:
        with urllib.request.urlopen(entry["url"], timeout=300) as answer:  # noqa: S310
            while block := answer.read(1 << 20):
                file.write(block)
        file.seek(0)
        yield file


def evidence_of(entry: Mapping[str, Any], known: Mapping[str, str]) -> tuple[str, list[str], bool]:
    """Return the evidence for CUDA, the modules, and true where there is something for HIP."""
    with opened(entry) as file:
        if entry["filename"].endswith(".whl"):
            return of_wheel(zipfile.ZipFile(file), known)
        with tarfile.open(fileobj=file) as source:
            return of_source(source)


def of_source(source: tarfile.TarFile) -> tuple[str, list[str], bool]:
    names = source.getnames()
    builds = filter(re.compile(r"[^/]+/(?:setup|build\w*/.*)\.py").fullmatch, names)
    members = filter(None, map(source.extractfile, builds))
    text = "\n".join(member.read().decode(errors="replace") for member in members)
    cuda = sum(name.endswith((".cu", ".cuh")) for name in names)
    built = cuda and "CUDAExtension" in text
    tops = sorted({n.split("/")[1] for n in names if re.fullmatch(r"[^/]+/\w+/__init__\.py", n)})
    named = re.findall(r"CUDAExtension\(\s*(?:name\s*=\s*)?[\"'](\w+)[\"']", text)
    hip = bool(re.search(r"(?i)\bhip|rocm", text))
    evidence = f"source: CUDAExtension, {cuda} CUDA files{'' if hip else ', no HIP'}"
    return evidence if built else "", sorted({*named}) or tops, hip


def of_wheel(wheel: zipfile.ZipFile, known: Mapping[str, str]) -> tuple[str, list[str], bool]:
    names = wheel.namelist()
    described = next(name for name in names if name.endswith(".dist-info/METADATA"))
    metadata = wheel.read(described).decode(errors="replace")
    module = re.compile(r"(\w+)(?:/__init__\.py|\.(?:cpython|abi3)[\w.-]*\.so)")
    tops = {match[1] for match in map(module.fullmatch, names) if match}
    cuda, hip = "", False
    for name in names:
        if re.search(r"\.so(?:\.|\Z)", name):
            content = wheel.read(name)
            match = CUDA.search(content) or re.search(
                rb"_cuda\d+\.so|libcudart[\w.-]*\.so", name.encode()
            )
            cuda = cuda or (f"{name.rpartition('/')[2]} has {match[0].decode()}" if match else "")
            hip = hip or HIP.search(content) is not None or "rocm" in name
    for line in re.findall(r"(?m)^Requires-Dist: (.*)$", metadata):
        required = Requirement(line.strip())
        name = canonicalize_name(required.name)
        always = required.marker is None or "extra" not in str(required.marker)
        if always and not cuda and (NVIDIAS.match(name) or known.get(name) == "-"):
            cuda = f"requires {name}"
    return (f"wheel: {cuda}" if cuda else ""), sorted(tops), hip


def read_rows() -> Iterator[list[str]]:
    text = OUTPUT.read_text(encoding="utf-8") if OUTPUT.exists() else ""
    yield from (line.split("\t") for line in text.splitlines() if line and line[0] != "#")


def first_for_rocm(files: list[Mapping[str, Any]], known: Mapping[str, str]) -> str:
    """Return the first version from which on every wheel that is read has something for HIP."""
    newest = {str(version_of(one)): one for one in files}
    first = ""
    for version, entry in reversed(newest.items()):
        if entry.get("size", 0) > LARGEST or not evidence_of(entry, known)[2]:
            break
        first = version
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--add", nargs="*", default=[])
    options = parser.parse_args()
    old = {row[0]: row for row in read_rows()}
    rows = {name: row for name, row in old.items() if "/" in row[2] or options.add}
    known = {name: row[3] for name, row in old.items()}
    for name in options.add or old.keys() - rows.keys():
        files = files_of(name)
        wheels = [one for one in files if WHEEL.search(one["filename"])]
        entries = wheels or [one for one in files if one["filename"].endswith(".tar.gz")]
        if not entries:
            print(name, "has no file that is read")
            continue
        entry = entries[-1]
        evidence, modules, hip = evidence_of(entry, known)
        rocm = first_for_rocm(entries, known) if hip else "-"
        print(name, entry["filename"], evidence, hip, rocm, flush=True)
        if evidence and rocm:
            known[name] = rocm
            rows[name] = [name, " ".join(modules), str(version_of(entry)), rocm, evidence]
    lines = ("\t".join(row) for _, row in sorted(rows.items()))
    OUTPUT.write_text(HEAD + "".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
