"""Credentials and certificates of a site reach a build that needs them, and stay nowhere: canaries
in each of them must not be found in anything that is kept, printed or published.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import zstandard
from projects import TORCH, Project, small_torch, unique_image, write_project
from standins import Fault, Index, serve_index

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

# Fails unless both secrets are there, and leaves a mark that the search has to find.
READS_SECRETS = """\
FROM {{ from_reference }}
RUN --mount=type=secret,id=ca,target=/run/secrets/ca \\
    --mount=type=secret,id=proxies,target=/run/secrets/proxies \\
    grep -q CERTIFICATE /run/secrets/ca && . /run/secrets/proxies && \\
    test -n "$https_proxy" && echo both-secrets-were-here > /mark
"""
MARK = b"both-secrets-were-here"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canaries:
    """One per secret; `needles` are all the forms in which one could come to light."""

    index: str
    proxy: str
    certificate: str

    @property
    def needles(self) -> tuple[bytes, ...]:
        plain = [one.encode() for one in (self.index, self.proxy, self.certificate)]
        pairs = [f"me:{one}".encode() for one in (self.index, self.proxy)]
        return (*plain, *(base64.b64encode(pair) for pair in pairs))

    def found_in(self, content: bytes) -> list[bytes]:
        return [needle for needle in self.needles if needle in content]


@pytest.fixture
def canaries() -> Canaries:
    one = f"canary{uuid.uuid4().hex[:12]}"
    return Canaries(index=f"{one}index", proxy=f"{one}proxy", certificate=f"{one}certificate")


@pytest.fixture
def own_index(tmp_path: Path) -> Iterator[Index]:
    with serve_index(small_torch(tmp_path / "wheels"), name="cpu") as served:
        yield served


@pytest.fixture
def project(tmp_path: Path, own_index: Index, alone: dict[str, str], canaries: Canaries) -> Project:
    """torch for CPUs with a compiler, whose packages are what a build needs a network for."""
    torch, tools = unique_image(), unique_image()
    row: dict[str, object] = {"vendor": "cpu", "targets": ["x86_64"], "torch": TORCH}
    root = write_project(
        tmp_path / "project",
        rows=[row],
        images={
            torch: {"template": "torch", "title": "Runtime"},
            tools: {"parent": torch, "template": "tools", "title": "Compiler", "compiler": True},
        },
        indexes={"cpu": own_index.url},
        templates={"tools": READS_SECRETS},
    )
    certificates = tmp_path / "authorities.pem"
    text = authorities() + f"# {canaries.certificate}\n"
    certificates.write_text(text, encoding="utf-8")
    proxy = f"http://me:{canaries.proxy}@127.0.0.1:9"
    site = {
        "PIP_INDEX_URL": with_password(own_index.url, canaries.index),
        "PIP_CERT": str(certificates),
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
        "NO_PROXY": "127.0.0.1,localhost",
    }
    return Project(root=root, environment={**alone, **site})


def authorities() -> str:
    """A bundle that TLS accepts: the one that `requests` comes with."""
    import certifi

    return Path(certifi.where()).read_text(encoding="utf-8")


def with_password(url: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"me:{password}@{parts.netloc}"))


def everything_in(image: bytes, seen: set[str]) -> Iterator[tuple[str, bytes]]:
    """Every file of a saved image (manifests, configuration with history and labels, layers), the
    compressed ones also decompressed. A blob is named by its hash: those `seen` are left out.
    """
    with tarfile.open(fileobj=io.BytesIO(image)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None or member.name in seen:
                continue
            if member.name.startswith("blobs/"):
                seen.add(member.name)
            content = file.read()
            yield member.name, content
            if content.startswith(_ZSTD):
                reader = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content))
                yield f"{member.name} (decompressed)", reader.read()
            elif content.startswith(_GZIP):
                yield f"{member.name} (decompressed)", gzip.decompress(content)


def saved(client: Any, reference: str) -> bytes:
    """As `docker save` writes it: an OCI layout with every blob as it is stored."""
    return b"".join(client.api.get_image(reference))


def files_with(folder: Path, canaries: Canaries) -> list[str]:
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            found += [f"{path}: {needle!r}" for needle in canaries.found_in(path.read_bytes())]
    return found


def test_no_secret_stays_in_an_image_a_file_or_what_is_printed(
    project: Project, canaries: Canaries, client: Any, cache: Path
) -> None:
    built = project.invoke("build", "--json", timeout=200).expect(0)
    assert len(built.json) == 2
    for command in ("plan", "report", "doctor"):
        assert canaries.found_in(project.invoke(command).said.encode()) == []
    marked, seen = False, set[str]()
    for image in built.json.values():
        contents = dict(everything_in(saved(client, image["reference"]), seen))
        contents["history"] = json.dumps(client.api.history(image["image_id"])).encode()
        contents["inspected"] = json.dumps(client.api.inspect_image(image["image_id"])).encode()
        found = {name: canaries.found_in(text) for name, text in contents.items()}
        assert {name: needles for name, needles in found.items() if needles} == {}
        assert not [name for name, text in contents.items() if is_attestation(text)]
        marked = marked or any(
            MARK in text for name, text in contents.items() if name.endswith("(decompressed)")
        )
    assert marked, "the search did not look into the layer that used the secrets"
    assert files_with(project.root, canaries) == []
    assert files_with(cache, canaries) == []
    assert (project.root / "build" / ".bake" / "bake.json").is_file()


def is_attestation(content: bytes) -> bool:
    """BuildKit marks the manifests of attestations, and in-toto names its own kind."""
    return b"attestation-manifest" in content or b"application/vnd.in-toto" in content


def test_the_search_finds_a_secret_that_was_left(
    project: Project, canaries: Canaries, client: Any
) -> None:
    template = project.root / "images" / "tools" / "Dockerfile.j2"
    leaky = READS_SECRETS.replace(
        "echo both", "cp /run/secrets/proxies /leak && cat /leak && echo both"
    )
    template.write_text(leaky, encoding="utf-8")
    ended = project.invoke("build", "--json", timeout=200).expect(0)
    built = ended.json
    assert canaries.found_in(ended.said.encode()) == []
    assert files_with(project.root, canaries) == []  # the log of what the step printed among them
    [log] = (path for path in project.root.rglob("build.log") if b"***" in path.read_bytes())
    assert "https_proxy" in log.read_text("utf-8")
    found, seen = set(), set[str]()
    for image in built.values():
        everything = everything_in(saved(client, image["reference"]), seen)
        found |= {needle for _, text in everything for needle in canaries.found_in(text)}
    assert found == {canaries.proxy.encode()}


@pytest.mark.parametrize(
    "fault", [Fault(status=401), Fault(status=503), Fault(login=True)], ids=["401", "503", "login"]
)
def test_an_index_that_refuses_is_named_without_its_password(
    project: Project, own_index: Index, canaries: Canaries, fault: Fault
) -> None:
    own_index.fail("/", fault)
    ended = project.invoke("build").expect(9)
    assert own_index.url in ended.said
    assert canaries.found_in(ended.said.encode()) == []
    assert files_with(project.root, canaries) == []


def test_a_proxy_that_refuses_is_named_without_its_password(
    project: Project, canaries: Canaries
) -> None:
    project.environment.pop("NO_PROXY")
    project.environment.pop("no_proxy", "")
    ended = project.invoke("build").expect(9)
    assert canaries.found_in(ended.said.encode()) == []
    assert files_with(project.root, canaries) == []
