"""Names of images, read to the letter: what is in them becomes part of addresses. Words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpfront.errors import InputError

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]{{2,45}}\])(?::[0-9]{{1,5}})?")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
# https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_REPOSITORY = 255
# docker.io is a name in references only; its registry answers under another one.
_DOCKER_IO = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """`host[:port]/repository[:tag][@digest]`. The host is always explicit: a bare name would
    mean an image of the default registry.
    """

    host: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def name(self) -> str:
        """Host and repository."""
        return f"{self.host}/{self.repository}"


def read_reference(text: str) -> Reference:
    """Raise `InputError` for what is none."""
    host, _, rest = text.partition("/")
    named, separator, digest = rest.partition("@")
    repository, colon, tag = named.partition(":")
    wrong = _wrong_host(host) or wrong_repository(repository)
    if colon and not is_tag(tag):
        wrong = wrong or f"{tag!r} is no tag"
    if separator and not is_digest(digest):
        wrong = wrong or f"{digest!r} is no digest (sha256: and 64 hex digits)"
    if wrong:
        hint = "write it whole: registry.example/repository:tag, or ...@sha256:..."
        raise InputError(f"{text!r} is no image reference: {wrong}", hint=hint)
    return Reference(host=host, repository=repository, tag=tag, digest=digest)


def is_tag(text: str) -> bool:
    return _TAG.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def wrong_repository(text: str) -> str:
    """Why a text is no repository; "" if it is one."""
    if len(text) > _LONGEST_REPOSITORY:
        return f"a repository of more than {_LONGEST_REPOSITORY} characters"
    return "" if _REPOSITORY.fullmatch(text) else f"{text!r} is no repository"


def fallback_tag(digest: str) -> str:
    """Return the tag that lists a digest's documents in a registry without referrers API."""
    return digest.replace(":", "-", 1)


def address_of(host: str) -> str:
    """Return the host and port that a registry answers under."""
    return "registry-1.docker.io" if host in _DOCKER_IO else host


def is_docker_io(host: str) -> bool:
    return host in _DOCKER_IO


def is_loopback(host: str) -> bool:
    """Return true if a host (with or without port) is this machine, by its name alone."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name in {"localhost", "[::1]"} or re.fullmatch(r"127(?:\.\d{1,3}){3}", name) is not None


def _wrong_host(text: str) -> str:
    if not _HOST.fullmatch(text):
        return f"{text!r} is no registry"
    if "." in text or ":" in text or text == "localhost":
        return ""
    return f"{text!r} is no registry: a host has a dot or a port, or is localhost"
