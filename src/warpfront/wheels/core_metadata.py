"""The METADATA of a wheel (core metadata, PEP 566 and later), names of wheels and source archives,
the rules that tie a wheel's METADATA to its file name, and requirements of files. Words.

Lines are joined as pip does (https://pip.pypa.io/en/stable/reference/requirements-file-format/).
What a line may ask for is for its reader to say. An image's file has distributions of an index, and
sources: a folder of the project, a commit of a git repository, or one wheel by its address. Each is
pinned by content (a hash, a commit), never by its place.
"""

from __future__ import annotations

import base64
import functools
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urldefrag, urlsplit

from packaging.markers import Marker, UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import (
    BuildTag,
    NormalizedName,
    canonicalize_name,
    canonicalize_version,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from warpfront.errors import LockError
from warpfront.matrix.cell import RequirementList, Source

_INFO = ".dist-info"
_EGG = ".egg-info"
_TOO_LONG = re.compile(r"[0-9]{1000}")
_LABELLED = re.compile(r"([A-Za-z0-9._+!]+(?:-[A-Za-z0-9._+!]+){4,5})-([0-9a-z_.]+)\.whl")
_LONGEST_NAME = 255
_AT_HOME = ("", "purelib", "platlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The fields of METADATA that decide what is installed together, unparsed."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    extras: tuple[str, ...] = ()


def parse_metadata(text: str) -> Distribution:
    """Return the fields of a METADATA text. Raise `ValueError` where Name or Version is missing or
    given twice: installers would differ on which counts.
    """
    from packaging.metadata import parse_email  # noqa: PLC0415 - email takes longer than a plan may

    raw, unparsed = parse_email(text)
    for field in ("name", "version", "requires-python"):
        if len(unparsed.get(field, ())) > 1:
            raise ValueError(f"METADATA has {field.title()} {len(unparsed[field])} times")
    if not raw.get("name") or not raw.get("version"):
        raise ValueError("METADATA has no Name or no Version")
    return Distribution(
        name=raw["name"],
        version=raw["version"],
        requires=tuple(raw.get("requires_dist", ())),
        requires_python=raw.get("requires_python", ""),
        extras=tuple(raw.get("provides_extra", ())),
    )


def metadata_text(metadata: Distribution) -> str:
    """Return a METADATA text, the same for the same fields."""
    python = metadata.requires_python
    lines = ["Metadata-Version: 2.1", f"Name: {metadata.name}", f"Version: {metadata.version}"]
    lines += [f"Requires-Python: {python}"] if python else []
    lines += [f"Provides-Extra: {extra}" for extra in metadata.extras]
    lines += [f"Requires-Dist: {' '.join(require.split())}" for require in metadata.requires]
    return "\n".join(lines) + "\n"


def recorded_hash(sha256: str) -> str:
    """Return a digest (hex) as RECORD has it, `sha256=...`."""
    return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(sha256)).rstrip(b"=").decode()


def requires_of(text: str) -> tuple[str, ...]:
    """Return Requires-Dist of a METADATA text, whatever else is wrong with it."""
    from packaging.metadata import parse_email  # noqa: PLC0415 - see `parse_metadata`

    return tuple(parse_email(text)[0].get("requires_dist", ()))


def accepts_python(metadata: Distribution, python: str) -> bool:
    """Return whether Requires-Python accepts some release of Python `python` (X.Y)."""
    try:
        accepted = SpecifierSet(metadata.requires_python)
        return any(accepted.contains(f"{python}.{micro}") for micro in range(100))
    except ValueError:
        return True  # as pip and uv take it


def info_folder(filename: str, members: Collection[str]) -> str:
    """Return the name of the wheel's one dist-info folder. Raise `ValueError` if the members
    would install a second distribution, or one that the file name does not name.
    """
    tops = {installed_path(member).partition("/")[0] for member in members}
    infos = sorted(top for top in tops if top.casefold().endswith(_INFO))
    if len(infos) != 1:
        raise ValueError(f"holds {len(infos)} dist-info folders, not one: {', '.join(infos)}")
    if not any(member.startswith(f"{infos[0]}/") for member in members):
        raise ValueError(f"installs {infos[0]} from its .data folder")
    name, version, _, _ = parse_wheel_filename(filename)
    stem, _, release = infos[0][: -len(_INFO)].partition("-")
    identity = (canonicalize_name(stem), canonicalize_version(release.replace("_", "-")))
    if identity != (name, canonicalize_version(version)):
        raise ValueError(f"its dist-info folder is {infos[0]}")
    for top in sorted(tops):
        of = canonicalize_name(top[: -len(_EGG)].partition("-")[0])
        if top.casefold().endswith(_EGG) and of != name:
            raise ValueError(f"holds the metadata of another distribution: {top}")
    inside = Counter(member.casefold() for member in members if member.startswith(f"{infos[0]}/"))
    member, times = inside.most_common(1)[0]
    if times > 1:
        raise ValueError(f"holds {member} {times} times")
    return infos[0]


def check_identity(filename: str, metadata: Distribution, wheel_text: str) -> None:
    """Raise `ValueError` if METADATA or WHEEL contradicts the file name."""
    name, version, _, _ = parse_wheel_filename(filename)
    if canonicalize_name(metadata.name) != name:
        raise ValueError(f"its METADATA says Name: {metadata.name}")
    if canonicalize_version(metadata.version) != canonicalize_version(version):
        raise ValueError(f"its METADATA says Version: {metadata.version}")
    written = [line.partition(":") for line in wheel_text.splitlines()]
    named = [value.strip() for key, _, value in written if key.strip().casefold() == "tag"]
    if not any(_same_build(filename.removesuffix(".whl"), text) for text in named):
        raise ValueError(f"its WHEEL says Tag: {', '.join(named) or 'nothing'}")


def placed(member: str) -> tuple[str, str]:
    """Return the scheme of a wheel's member, "" for the wheel's own, and its path below that."""
    top, _, rest = member.partition("/")
    scheme, _, below = rest.partition("/")
    return (scheme, below) if rest and top.endswith(".data") else ("", member)


def installed_path(member: str) -> str:
    """Return the path of a wheel's member below site-packages; "" for programs, headers, data."""
    scheme, below = placed(member)
    return below if scheme in _AT_HOME else ""


def _same_build(named: str, built: str) -> bool:
    """Return true if WHEEL's tag is that of the file name. Projects give a file built as
    `linux` or `any` the name of a manylinux level without changing WHEEL (ray, playwright).
    Compressed sets stay so: their product has no limit.
    """
    names = [part.split(".") for part in named.lower().split("-")[-3:]]
    builds = [part.split(".") for part in built.lower().split("-")]
    names[-1], builds[-1] = ["any", *map(_machine, names[-1])], [*map(_machine, builds[-1])]
    pairs = zip(names, builds, strict=False)
    return len(builds) == 3 and not any(set(name).isdisjoint(build) for name, build in pairs)


def _machine(platform: str) -> str:
    """Return the platform without the level of its C library."""
    system, _, rest = platform.partition("_")
    if not system.startswith(("linux", "manylinux", "musllinux")):
        return platform
    parts = rest.split("_")
    return "_".join(parts[2:] if parts[0].isdigit() and len(parts) > 2 else parts)


class FileName(NamedTuple):
    """The parts of a distribution's file name; a source archive has no build and no tags."""

    name: NormalizedName
    version: Version
    build: BuildTag = ()
    tags: frozenset[Tag] = frozenset()


def read_wheel_name(filename: str) -> FileName | None:
    """Return the parts of a wheel's name; None for what is no wheel's name."""
    return read_file_name(filename) if filename.endswith(".whl") else None


def split_label(filename: str) -> tuple[str, str]:
    """Return a wheel's file name without the label of its variant, and the label; "" where it
    has none. What is no wheel's name either way comes back as it was.
    """
    match = _LABELLED.fullmatch(filename)
    if match is None or read_wheel_name(filename):
        return filename, ""
    plain = f"{match[1]}.whl"
    return (plain, match[2]) if read_wheel_name(plain) else (filename, "")


@functools.cache  # the same wheels are in many locks and on many pages
def read_file_name(filename: str) -> FileName | None:
    """Return the parts of the name of a wheel or source archive; None for any other name, and for
    one that no file system takes: its tags may be a million.
    """
    parse: Any = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
    try:
        return FileName(*parse(filename)) if len(filename) <= _LONGEST_NAME else None
    except ValueError:
        return None


def wheel_name(path: str) -> str:
    """Return the distribution of the wheel that a path or URL ends in; "" for others."""
    wheel = read_wheel_name(path.rpartition("/")[2].replace("%2B", "+"))
    return wheel.name if wheel else ""


INCLUDES = frozenset({"-r", "--requirement"})
CONSTRAINTS = frozenset({"-c", "--constraint"})
EDITABLE = frozenset({"-e", "--editable"})
INDEXES = frozenset({"-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links"})
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
"""The pattern of a distribution's name."""
_COMMENT = re.compile(r"(^|\s)#.*$")
_OPTION = re.compile(r"(--[A-Za-z][\w-]*|-[A-Za-z])[=\s]*(.*)\Z", re.DOTALL)
_PER_LINE_OPTION = re.compile(r"\s--?[a-z][\w-]*[=\s].*$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementLine:
    """Lines `start` to `end` (1-based) joined: continuations resolved, comments dropped.
    `source` is the first of them unchanged, at the offset `at` of the text.
    """

    start: int
    end: int
    at: int
    source: str
    text: str

    @property
    def option(self) -> tuple[str, str]:
        """(name, value) of a line that is an option, such as `-r base.txt`; else two times ""."""
        match = _OPTION.match(self.text)
        return (match[1], match[2].strip().strip("\"'")) if match else ("", "")


def read_lines(text: str) -> Iterator[RequirementLine]:
    """Yield the lines of a requirements file that are not blank or comments."""
    parts, start, source = list[str](), 0, ""
    bare = text.removeprefix("\ufeff")
    offset = first_at = len(text) - len(bare)
    lines = bare.splitlines(keepends=True)
    for number, whole in enumerate([*lines, ""], start=1):
        raw = whole.rstrip("\r\n")
        if not parts:
            start, source, first_at = number, raw, offset
        offset += len(whole)
        parts.append(_COMMENT.sub("", raw))
        if parts[-1].endswith("\\") and number <= len(lines):
            parts[-1] = parts[-1][:-1] + " "
            continue
        if joined := "".join(parts).strip():
            end = min(number, len(lines))
            yield RequirementLine(start=start, end=end, at=first_at, source=source, text=joined)
        parts.clear()


def foreign_requirement(text: str) -> Requirement:
    """Raise `InvalidRequirement`, also for what is nested deeper, or longer, than can be read."""
    if _TOO_LONG.search(text):  # Python reads 4,300 digits at most, and packaging does so later
        raise InvalidRequirement("a number is too long to be read")
    try:
        return Requirement(text)
    except RecursionError:
        raise InvalidRequirement("nested too deeply to be read") from None


def readable_requirement(text: str) -> Requirement | None:
    """Return the requirement; None for text that pip and uv skip as well."""
    try:
        return foreign_requirement(text)
    except InvalidRequirement:
        return None


def plain_requirement(requirement: Requirement) -> str:
    """Return the requirement without its marker, and without an address, which may be secret."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"


def requirement_name(text: str) -> str:
    """Return the normalized name that a requirement begins with, however the rest is written."""
    match = re.match(NAME, text)
    return str(canonicalize_name(match[0])) if match else ""


def marker_environment(python: str, machine: str) -> Mapping[str, str]:
    """Return the environment of markers: CPython `python` (X.Y) on Linux."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }


def marker_holds(marker: Marker, environment: Mapping[str, str]) -> bool:
    """Return true if a foreign marker is true. As in uv, one with incomparable values is not."""
    try:
        return marker.evaluate(dict(environment))
    except (UndefinedComparison, UndefinedEnvironmentName):
        return False


def applies(demand: Requirement, environment: Mapping[str, str], extra: str = "") -> bool:
    """Return true if the marker is true; for an extra, only if the extra makes it true."""
    if demand.marker is None:
        return not extra
    plain = marker_holds(demand.marker, {**environment, "extra": ""})
    if not extra:
        return plain
    return not plain and marker_holds(demand.marker, {**environment, "extra": extra})


def without_options(text: str) -> str:
    """Return the text without the options that pip lets follow a requirement (`--hash`)."""
    return _PER_LINE_OPTION.sub("", text).strip()


_PATH = re.compile(r"(?P<path>\.{1,2}(?:/[^\[\];\s]*)?)(?:\[(?P<extras>[^\]]*)\])?\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_URL = re.compile(r"[a-z+]+:(//|/)?")


def read_requirements(
    path: str,
    read: Callable[[str], str],
    *,
    inside: Callable[[str], bool],
    within: tuple[str, ...] = (),
) -> RequirementList:
    """Return the requirements of a file and of those that it includes with `-r`, each in its place.

    `path` is below the project; `read` returns the text of such a path, and `inside` whether it is
    in the project once its links are resolved; `within` are the files that include this one.
    Nothing outside is read. `-e` means the same as the path after it: an image has no live source
    tree. All other options (`-c`, `--index-url`, `--hash` ...) are refused: a lock has one list of
    requirements and the matrix's indexes.
    """
    if not within and not inside(path):
        raise _outside(path, "the file")
    requirements: list[str] = []
    sources: list[Source] = []
    for line in read_lines(read(path)):
        where = f"{path}:{line.start}"
        option, value = line.option
        if option in INCLUDES and value:
            outer = (*within, path)
            below = posixpath.normpath(posixpath.join(posixpath.dirname(path), value))
            if below.startswith(("..", "/")) or _URL.match(value) or not inside(below):
                raise _outside(where, without_query(value))
            if below in outer:
                raise LockError(f"{where}: {value} includes itself: {' -> '.join((*outer, below))}")
            more = read_requirements(below, read, inside=inside, within=outer)
            requirements += more.requirements
            sources += more.sources
            continue
        text = value if option in EDITABLE and value else line.text
        parsed = _read_line(text, path=path, where=where)
        if isinstance(parsed, Source):
            if (folder := _here(parsed)) and not inside(folder):
                raise _outside(where, without_query(text))
            sources.append(parsed)
        else:
            requirements.append(parsed)
    return RequirementList(requirements=tuple(requirements), sources=tuple(sources))


def _outside(where: str, subject: str) -> LockError:
    return LockError(
        f"{where}: {subject} is outside the project, or a link that leads out of it",
        hint="keep the file or folder in the project, or name a commit: git+https://...@<commit>",
    )


def _here(source: Source) -> str:
    """Return the path of a source that lies on this machine; "" for others."""
    if source.kind == "folder":
        return source.location
    parts = urlsplit(source.location)
    return unquote(parts.path) if parts.scheme == "file" else ""


def _read_line(line: str, *, path: str, where: str) -> str | Source:
    option = next((word for word in line.split() if word.startswith("-")), None)
    if option is not None:
        raise LockError(
            f"{where}: {option.partition('=')[0]} is an option, not a requirement",
            hint="write requirements only: indexes come from matrix.yaml and pip's configuration, "
            "hashes from the lock",
        )
    folder = _PATH.match(line)
    if folder is not None:
        below = posixpath.normpath(posixpath.join(posixpath.dirname(path), folder["path"]))
        if below.startswith(".."):
            raise _outside(where, folder["path"])
        named = (extra.strip() for extra in (folder["extras"] or "").split(","))
        return Source(kind="folder", location=below, extras=tuple(sorted(filter(None, named))))
    if _URL.match(line):
        return _read_address(line, name="", extras=(), where=where)
    try:
        requirement = foreign_requirement(line)
    except InvalidRequirement as error:
        raise LockError(f"{where}: not a requirement: {str(error).splitlines()[0]}") from error
    if not requirement.url:
        return str(requirement)
    if requirement.marker is not None:
        raise LockError(
            f"{where}: a source with a marker", hint="an image has one platform: drop the marker"
        )
    extras = tuple(sorted(requirement.extras))
    name = canonicalize_name(requirement.name)
    return _read_address(requirement.url, name=name, extras=extras, where=where)


def _read_address(url: str, *, name: str, extras: tuple[str, ...], where: str) -> Source:
    if "@" in urlsplit(url).netloc:
        raise LockError(
            f"{where}: an address with a user name or password",
            hint="git takes them from its credential helper, pip from netrc",
        )
    bare, fragment = urldefrag(url)
    facts = {key: values[-1] for key, values in parse_qs(fragment).items()}
    name = name or canonicalize_name(facts.get("egg", ""))
    if bare.startswith("git+"):
        location, separator, commit = bare.removeprefix("git+").rpartition("@")
        if not separator or not _COMMIT.match(commit):
            raise LockError(
                f"{where}: {bare} names no commit",
                hint="branches and tags move: write @ and the 40 digits of the commit",
            )
        if not location.startswith(("https://", "file:///")):
            raise LockError(
                f"{where}: {bare}: only git+https:// is fetched", hint="use its address"
            )
        subdirectory = facts.get("subdirectory", "")
        if subdirectory and (
            ".." in PurePosixPath(subdirectory).parts or subdirectory.startswith("/")
        ):
            raise LockError(f"{where}: subdirectory {subdirectory} is outside its repository")
        return Source(
            kind="git",
            location=location,
            name=name,
            extras=extras,
            subdirectory=subdirectory,
            pin=commit,
        )
    if bare.startswith(("https://", "http://", "file://")) and bare.endswith(".whl"):
        return _read_wheel_address(bare, facts, extras=extras, where=where)
    raise LockError(
        f"{where}: {without_query(url)} is neither a wheel nor a git repository",
        hint="write a path (./package), git+https://...@<commit>, or https://....whl#sha256=...",
    )


def _read_wheel_address(
    url: str, facts: dict[str, str], *, extras: tuple[str, ...], where: str
) -> Source:
    plain, label = split_label(unquote(urlsplit(url).path.rpartition("/")[2]))
    if label:
        name, version, *_ = plain.split("-")
        raise LockError(
            f"{where}: {name} of the variant {label} by its address: a cell's target chooses its "
            "variant",
            hint=f"write {name}=={version} here; in matrix.yaml `allow_variants: [{name}]`, and "
            "its index below `indexes:` (docs/locks.md, Wheel variants)",
        )
    sha256 = facts.get("sha256", "")
    if not _SHA256.match(sha256):
        raise LockError(
            f"{where}: {url} has no hash", hint="add #sha256= and the 64 digits of the wheel's hash"
        )
    name = wheel_name(url)
    if not name:
        raise LockError(f"{where}: {without_query(url)} does not end in a wheel's name")
    return Source(kind="wheel", location=url, name=name, extras=extras, pin=sha256)


def without_query(url: str) -> str:
    """Return `url` without the parts that may contain a token."""
    return url.partition("?")[0].partition("#")[0]
