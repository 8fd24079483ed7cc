"""Contents of this image for its SBOM: distributions with the licences, demands and components
of their metadata; Debian packages; the system's name.

Written inside an image and read outside as untrusted input: `Contents` is one type on both sides.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from email.parser import HeaderParser
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from warpfront_checks.documents import Reader

SCHEMA = 1
MOST_PARTS = 20_000
LONGEST = 2_000
_FILE_LIMIT_BYTES = 16 * 2**20
_COPYRIGHT_LIMIT_BYTES = 2 * 2**20
_BILL = re.compile(r"[^/]*\.(cdx|cyclonedx)\.json\Z")
_CARRIED_METADATA = re.compile(r".+/[^/]+\.dist-info/METADATA\Z")
# https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
_MACHINE_READABLE = re.compile(r"\AFormat(-Specification)?:", re.IGNORECASE)
_LICENCE = re.compile(r"^License:[ \t]*(\S[^\n]*)$", re.MULTILINE | re.IGNORECASE)


class ContentsError(ValueError):
    """A document that is no list of contents; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class EmbeddedComponent:
    """A component in a distribution, by its metadata: `kind` is its purl's type (`cargo`)."""

    kind: str
    name: str
    version: str


@dataclass(frozen=True, kw_only=True)
class FoundDistribution:
    """A distribution by its own metadata. `expression`, `licence` and `classifiers` are its three
    ways to name a licence, `requires` its `Requires-Dist`.
    """

    name: str
    version: str
    expression: str = ""
    licence: str = ""
    classifiers: tuple[str, ...] = ()
    licence_files: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    carried: tuple[EmbeddedComponent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Package:
    """A Debian package as dpkg knows it. `source` is the source package's name (and version, where
    it differs), `licences` the names that its copyright file gives, if a machine can read that.
    """

    name: str
    version: str
    architecture: str
    source: str = ""
    licences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents of an image. `system` and `release` are ID and VERSION_ID of os-release
    (`debian`, `12`), `folders` the bytes of the files in each folder (`folder_of`).
    """

    distributions: tuple[FoundDistribution, ...] = ()
    packages: tuple[Package, ...] = ()
    system: str = ""
    release: str = ""
    folders: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """Return JSON values that `contents_from` reads back to an equal value."""
        document: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return {"schema": SCHEMA, **document}


def read_contents(root: Path = Path("/")) -> Contents:
    """Read the distributions of this Python and the packages of the system below `root`."""
    # os-release(5), as far as its plain names go.
    lines = _text(root / "etc" / "os-release", _COPYRIGHT_LIMIT_BYTES).splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    release = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    dpkg = root / "var" / "lib" / "dpkg"
    status = _text(dpkg / "status", _FILE_LIMIT_BYTES)
    parts = sorted((dpkg / "status.d").glob("*")) if (dpkg / "status.d").is_dir() else []
    texts = [status, *(_text(part, _COPYRIGHT_LIMIT_BYTES) for part in parts)]
    distributions = (
        found_in(each.read_text("METADATA") or each.read_text("PKG-INFO") or "", _inside(each))
        for each in importlib.metadata.distributions()
    )
    named = [distribution for distribution in distributions if distribution is not None]
    return Contents(
        distributions=tuple(sorted(named, key=attrgetter("name", "version"))),
        packages=tuple(
            with_licences(package, _copyright(root, package.name))
            for text in texts
            for package in packages_in(text)
        ),
        system=_short(release.get("ID", "")),
        release=_short(release.get("VERSION_ID", "")),
        folders=folder_sizes(root),
    )


def folder_sizes(root: Path) -> dict[str, int]:
    """Return regular files' bytes by folder, each hard link once, without what is mounted."""
    sizes: Counter[str] = Counter()
    inodes: set[tuple[int, int]] = set()

    def status_of(*parts: str) -> os.stat_result | None:
        try:
            return Path(*parts).lstat()
        except OSError:
            return None

    def is_here(*parts: str) -> bool:
        """Return whether a folder is on the file system, and no link."""
        status = status_of(*parts)
        return bool(status and stat.S_ISDIR(status.st_mode) and status.st_dev == device)

    try:
        device = root.stat().st_dev
    except OSError:
        return {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if is_here(folder, name)]
        inside = folder_of(Path(folder).relative_to(root).parts)
        for status in filter(None, (status_of(folder, name) for name in files)):
            place = (status.st_dev, status.st_ino)
            if stat.S_ISREG(status.st_mode) and (status.st_nlink == 1 or place not in inodes):
                inodes.add(place)
                sizes[inside] += status.st_size
    return dict(sizes.most_common(MOST_PARTS))


def folder_of(parts: tuple[str, ...]) -> str:
    """Return the folder that a deeper one counts for: two levels, or a package of site-packages."""
    for index, name in enumerate(parts):
        if name in {"site-packages", "dist-packages"}:
            return _short("/" + "/".join(parts[: index + 2]))
    return _short("/" + "/".join(parts[:2]))


def packages_in(status: str) -> Iterator[Package]:
    """Yield the installed packages of dpkg's status file (deb-control(5)), each once."""
    listed = set()
    for block in re.split(r"\n[ \t]*\n", status):
        fields = HeaderParser().parsestr(block.strip("\n"))
        name, version, architecture, source = (
            _short(str(fields.get(field, "")).strip())
            for field in ("Package", "Version", "Architecture", "Source")
        )
        package = Package(name=name, version=version, architecture=architecture, source=source)
        is_installed = str(fields.get("Status", "installed")).split()[-1:] == ["installed"]
        if is_installed and name and version and package not in listed:
            listed.add(package)
            yield package


def with_licences(package: Package, copyright_text: str) -> Package:
    """Return the package with the licences that a machine-readable copyright file names."""
    listed = _LICENCE.findall(copyright_text) if _MACHINE_READABLE.match(copyright_text) else ()
    names = {_short(" ".join(match.split())) for match in listed}
    return replace(package, licences=tuple(sorted(names)))


def _copyright(root: Path, name: str) -> str:
    plain = name.partition(":")[0]
    file = root / "usr" / "share" / "doc" / plain / "copyright"
    named = re.fullmatch(r"[a-z0-9][a-z0-9+.-]*", plain)
    return _text(file, _COPYRIGHT_LIMIT_BYTES) if named else ""


def found_in(metadata: str, carried: Iterable[EmbeddedComponent] = ()) -> FoundDistribution | None:
    """Return a distribution by the text of its METADATA; None where that names none."""
    read = HeaderParser().parsestr(metadata)
    name, version = read.get("Name", "").strip(), read.get("Version", "").strip()
    if not name or not version:
        return None
    return FoundDistribution(
        name=_short(name),
        version=_short(version),
        expression=_short(str(read.get("License-Expression", ""))),
        licence=_short(str(read.get("License", "")).strip().split("\n")[0]),
        classifiers=_all(read, "Classifier", "License ::"),
        licence_files=_all(read, "License-File"),
        requires=_all(read, "Requires-Dist"),
        carried=tuple(sorted(set(carried), key=attrgetter("kind", "name", "version"))),
    )


def carried_by(bill: object) -> Iterator[EmbeddedComponent]:
    """Yield a CycloneDX document's components, however deep, by purl: `pkg:cargo/aes@0.8.4`."""
    pending: list[Any] = [bill]
    while pending:
        component = pending.pop()
        if isinstance(component, dict):
            inner = component.get("components")
            pending += inner if isinstance(inner, list) else []
            purl = re.match(r"pkg:(\w+)/([^?#@]+)@([^?#]+)", str(component.get("purl", "")))
            if purl:
                name, version = unquote(purl[2]), unquote(purl[3])
                yield EmbeddedComponent(kind=purl[1], name=_short(name), version=_short(version))


def contents_from(document: object) -> Contents:
    """Return a document's contents. Raise `ContentsError`: beyond the limits none is cut off."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ContentsError(f"contents: schema is not {SCHEMA}")
    fields = {name: value for name, value in document.items() if name != "schema"}
    for name in ("distributions", "packages"):
        if not isinstance(fields.get(name), list):
            raise ContentsError(f"contents: {name} is not a list")
    contents = _READER.record(Contents, fields, "contents")
    named: list[Any] = [*contents.packages, *contents.distributions]
    named += [each for distribution in contents.distributions for each in distribution.carried]
    if not all(each.name and each.version for each in named):
        raise ContentsError("contents: something is without name or version")
    if any(size < 0 for size in contents.folders.values()):
        raise ContentsError("folders: a size is negative")
    return contents


_READER = Reader(error=ContentsError, longest=LONGEST, most=MOST_PARTS)


def _inside(distribution: importlib.metadata.Distribution) -> Iterator[EmbeddedComponent]:
    """Yield vendored distributions, and the CycloneDX documents that came along (PEP 770)."""
    for file in distribution.files or ():
        path = file.as_posix()
        if _BILL.match(file.name):
            with contextlib.suppress(ValueError, RecursionError):
                bill = _text(Path(str(file.locate())), _FILE_LIMIT_BYTES)
                yield from carried_by(json.loads(bill))
        elif _CARRIED_METADATA.match(path):
            inner = found_in(_text(Path(str(file.locate())), _COPYRIGHT_LIMIT_BYTES))
            if inner is not None:
                yield EmbeddedComponent(kind="pypi", name=inner.name, version=inner.version)


def _all(read: Any, name: str, prefix: str = "") -> tuple[str, ...]:
    texts = (_short(" ".join(str(text).split())) for text in read.get_all(name) or ())
    return tuple(text for text in texts if text.startswith(prefix))[:MOST_PARTS]


def _short(text: str) -> str:
    """Return a foreign text as one short line: a licence's name, not the licence itself."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _text(path: Path, limit_bytes: int) -> str:
    """Return the beginning of a file; "" if there is none."""
    try:
        with path.open("rb") as file:
            return file.read(limit_bytes).decode("utf-8", errors="replace")
    except OSError:
        return ""
