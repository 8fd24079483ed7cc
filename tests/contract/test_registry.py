"""What a registry promises: the same suite against the stub and Debian's own, then what only a real
one can show: TLS, death in the middle of a push, a full disk, silence, a blob that rotted.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from registries import PASSWORD, USER, RealRegistry, real_registry
from stub_registry import attach_one, client_of, digest_of, file_blob, serve_registry

from warpfront.errors import RegistryError, RegistryFault
from warpfront.release.registry import http
from warpfront.release.registry.authorization import read_credentials
from warpfront.release.registry.client import HttpRegistry, connect
from warpfront.release.registry.contract import (
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    Artifact,
    Blob,
    ContentStore,
    Descriptor,
    ImageManifest,
    Registry,
    bytes_blob,
    document_body,
    index_body,
)
from warpfront.release.registry.copying import Repository, copy_whole
from warpfront.release.registry.deleting import deleter_for
from warpfront.release.registry.http import Exchange, Patience
from warpfront.release.registry.layout import LayoutRegistry
from warpfront.system import process

IN_PIECES: dict[str, Any] = {"whole_bytes": 2**20, "piece_bytes": 4 * 2**20}
QUICK = Patience(
    connect_seconds=2.0, answer_seconds=2.0, tries=4, first_wait_seconds=0.1, longest_wait_seconds=1
)

pytestmark = pytest.mark.timeout(120)
# Debian's registry is fetched and started: with the other real ones, not with the unit tests.
REAL = pytest.mark.docker


@pytest.fixture(scope="module")
def debians(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealRegistry]:
    with real_registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


def connected(registry: RealRegistry, patience: Patience = QUICK) -> HttpRegistry:
    return connect(
        registry.host, registry.environment, process.run, patience=replace(patience, **IN_PIECES)
    )


HOSTS = ["stub", "stub without referrers", pytest.param("debians", marks=REAL)]
of_hosts = pytest.mark.parametrize("registry", HOSTS, indirect=True)


@pytest.fixture(params=[*HOSTS, "folder"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ContentStore]:
    if request.param == "debians":
        yield connected(request.getfixturevalue("debians"))
        return
    if request.param == "folder":
        yield LayoutRegistry(folder=tmp_path / "folder")
        return
    with serve_registry(auth="basic", referrers=request.param == "stub") as stub:
        yield client_of(stub, tmp_path, sizes=IN_PIECES)


@pytest.fixture
def repository(request: pytest.FixtureRequest) -> str:
    """One for each test, as the real registry is everybody's."""
    return f"contract/x{abs(hash(request.node.name)):x}"


def put_image(
    registry: ContentStore, repository: str, tag: str, content: bytes = b""
) -> Descriptor:
    config = bytes_blob(json.dumps({"os": "linux", "architecture": "amd64"}).encode())
    layer = bytes_blob(content or os.urandom(3000))
    parts = []
    for blob, kind in ((config, "config.v1+json"), (layer, "layer.v1.tar")):
        registry.put_blob(repository, blob)
        named = Descriptor(
            media_type=f"application/vnd.oci.image.{kind}",
            digest=blob.digest,
            size_bytes=blob.size_bytes,
        )
        parts.append(named)
    body = document_body(ImageManifest(config=parts[0], layers=tuple(parts[1:])))
    return registry.put_manifest(repository, tag, body, IMAGE_MANIFEST)


def test_what_was_put_is_found_by_tag_and_by_digest(
    registry: ContentStore, repository: str
) -> None:
    assert registry.manifest(repository, "v1") is None
    assert registry.head(repository, "v1") is None
    assert registry.tags(repository) == ()
    put = put_image(registry, repository, "v1")
    assert registry.head(repository, "v1") == registry.head(repository, put.digest) == put
    found = registry.manifest(repository, put.digest)
    assert found is not None
    registry.put_manifest(repository, "v2", found.body, IMAGE_MANIFEST)
    assert registry.tags(repository) == ("v1", "v2")


def test_a_blob_comes_back_as_it_went(
    registry: ContentStore, repository: str, tmp_path: Path
) -> None:
    large, small, none = (bytes_blob(os.urandom(size)) for size in (9 * 2**20 + 1, 1000, 0))
    for blob in (large, small, none):
        assert registry.put_blob(repository, blob) == blob.size_bytes
        assert registry.put_blob(repository, blob) == 0
        registry.save_blob(repository, blob.digest, tmp_path / "saved", blob.size_bytes)
        assert (tmp_path / "saved").read_bytes() == blob.open().read()


@of_hosts
def test_a_blob_is_read_as_it_comes(registry: Registry, repository: str) -> None:
    large = bytes_blob(os.urandom(9 * 2**20 + 1))
    registry.put_blob(repository, large)
    with registry.open_blob(repository, large.digest) as file:
        assert file.read() == large.open().read()


def test_a_blob_is_mounted_from_beside(registry: ContentStore, repository: str) -> None:
    blob = bytes_blob(os.urandom(2000))
    registry.put_blob(repository, blob)
    beside = f"{repository}/beside"
    assert registry.put_blob(beside, blob, ["no/where", repository]) == 0
    assert registry.blob(beside, blob.digest, 3000) == blob.open().read()


def test_what_is_attached_is_found(registry: ContentStore, repository: str) -> None:
    subject = put_image(registry, repository, "v1")
    assert registry.referrers(repository, subject.digest) == ()
    attached = tuple(
        attach_one(
            registry,
            repository,
            subject,
            Artifact(
                artifact_type=f"application/{kind}",
                payload=kind.encode(),
                annotations={"kind": kind},
            ),
        )
        for kind in ("sbom", "provenance", "sbom")
    )
    found = registry.referrers(repository, subject.digest)
    assert {one.digest for one in found} == {one.digest for one in attached}
    assert {one.artifact_type for one in found} == {"application/sbom", "application/provenance"}
    assert len(found) == 2


@of_hosts
def test_deleting_a_digest_takes_every_tag_on_it(registry: Registry, repository: str) -> None:
    put = put_image(registry, repository, "v1")
    body = registry.manifest(repository, "v1")
    assert body is not None
    registry.put_manifest(repository, "v2", body.body, IMAGE_MANIFEST)
    other = put_image(registry, repository, "v3")
    assert registry.deletes(repository)
    assert registry.head(repository, "v1") is not None, "for asking that, nothing is deleted"
    registry.delete(repository, put.digest)
    assert registry.head(repository, "v1") is None
    assert registry.head(repository, "v2") is None
    assert registry.head(repository, "v3") == other
    registry.delete(repository, put.digest)


def test_what_names_something_that_is_not_there_is_refused(
    registry: ContentStore, repository: str
) -> None:
    gone = Descriptor(media_type=IMAGE_MANIFEST, digest="sha256:" + "0" * 64, size_bytes=5)
    with pytest.raises(RegistryError, match=r"MANIFEST_BLOB_UNKNOWN|missing"):
        registry.put_manifest(repository, "all", index_body([gone]), IMAGE_INDEX)
    assert registry.head(repository, "all") is None


def test_an_image_goes_through_a_folder_with_all_that_is_attached(
    registry: ContentStore, repository: str, tmp_path: Path
) -> None:
    image = put_image(registry, repository, "v1")
    index = registry.put_manifest(repository, "all", index_body([image]), IMAGE_INDEX)
    attach_one(
        registry,
        repository,
        image,
        Artifact(
            artifact_type="application/sbom",
            payload=b"{}",
            annotations={},
        ),
    )
    layout = LayoutRegistry(folder=tmp_path / "carried")
    here, disk = (
        Repository(registry=registry, repository=repository),
        Repository(registry=layout, repository="x"),
    )
    there = Repository(registry=registry, repository=f"{repository}/elsewhere")
    for source, target in ((here, disk), (disk, there)):
        copy_whole(source, target, index.digest)
    assert registry.head(there.repository, index.digest) == index
    assert registry.referrers(there.repository, image.digest) == registry.referrers(
        repository, image.digest
    )


# What only a real one can show.


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RealRegistry]:
    """One that a test may kill."""
    with real_registry(tmp_path / "registry") as found:
        yield found


@pytest.mark.docker
def test_a_certificate_nobody_vouches_for_is_not_believed(
    debians: RealRegistry, tmp_path: Path
) -> None:
    import trustme

    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    environment = {**debians.environment, "REQUESTS_CA_BUNDLE": str(tmp_path / "ca.pem")}
    client = connect(debians.host, environment, process.run, patience=QUICK)
    with pytest.raises(RegistryError, match="certificate is not trusted") as caught:
        client.tags("a/b")
    assert caught.value.fault is RegistryFault.UNREACHABLE
    assert "certs.d" in caught.value.hint


@pytest.mark.docker
def test_one_that_docker_vouches_for_is(
    debians: RealRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "AUTHORITIES", tmp_path)
    place = tmp_path / debians.host
    place.mkdir()
    shutil.copy(debians.ca, place / "ca.crt")
    environment = {"DOCKER_CONFIG": str(debians.docker_config)}
    credentials = read_credentials(environment, process.run)
    exchange = Exchange(debians.host, environment, credentials, QUICK)
    assert HttpRegistry(exchange).tags("no/where") == ()


@pytest.mark.docker
def test_a_wrong_password_is_said_and_not_shown(debians: RealRegistry, tmp_path: Path) -> None:
    login = {"username": USER, "password": "another canary"}
    (tmp_path / "config.json").write_text(json.dumps({"auths": {debians.host: login}}))
    environment = {**debians.environment, "DOCKER_CONFIG": str(tmp_path)}
    client = connect(debians.host, environment, process.run, patience=QUICK)
    with pytest.raises(RegistryError, match="login for it is refused") as caught:
        client.put_blob("a/b", bytes_blob(b"x"))
    assert "canary" not in str(caught.value) + caught.value.hint
    assert PASSWORD not in debians.log.read_text(errors="replace")


@pytest.mark.docker
def test_a_blob_that_rotted_is_noticed_where_it_is_read(
    debians: RealRegistry, tmp_path: Path
) -> None:
    client, blob = connected(debians), bytes_blob(os.urandom(3000))
    client.put_blob("rotten/x", blob)
    debians.blob_file(blob.digest).write_bytes(
        bytes([blob.open().read()[0] ^ 1]) + blob.open().read()[1:]
    )
    assert client.put_blob("rotten/x", blob) == 0, "as it says itself"
    with pytest.raises(RegistryError, match="it sent sha256:"):
        client.save_blob("rotten/x", blob.digest, tmp_path / "saved", 3000)
    assert not (tmp_path / "saved").exists()


def late_blob(folder: Path, then: Callable[[], object]) -> Blob:
    """24 MiB; `then` is called once, when 10 MiB of them have been read."""
    content, gone = os.urandom(24 * 2**20), 0

    def count(size: int) -> None:
        nonlocal gone
        before, gone = gone, gone + size
        if before < 10 * 2**20 <= gone:
            then()

    (folder / "blob").write_bytes(content)
    return file_blob(folder / "blob", digest_of(content), len(content), count)


def pushing(registry: RealRegistry, tries: int = QUICK.tries) -> HttpRegistry:
    return connect(
        registry.host,
        registry.environment,
        process.run,
        patience=replace(QUICK, tries=tries, **IN_PIECES),
    )


@pytest.mark.docker
def test_a_registry_that_dies_in_the_middle_of_a_push_and_comes_back_gets_it_all(
    own: RealRegistry, tmp_path: Path
) -> None:
    started: list[threading.Thread] = []

    def die() -> None:
        own.kill()
        started.append(threading.Thread(target=own.start))
        started[0].start()

    client, blob = pushing(own, tries=12), late_blob(tmp_path, die)
    sent = client.put_blob("a/b", blob)
    started[0].join()
    assert client.put_blob("a/b", blob) == 0
    assert blob.size_bytes < sent <= 2 * blob.size_bytes


@pytest.mark.docker
def test_a_registry_that_dies_and_stays_dead_is_given_up_in_words(
    own: RealRegistry, tmp_path: Path
) -> None:
    with pytest.raises(RegistryError, match=f"{own.host}: upload of sha256:") as caught:
        pushing(own).put_blob("a/b", late_blob(tmp_path, own.kill))
    assert caught.value.fault is RegistryFault.UNREACHABLE


@pytest.mark.docker
def test_a_registry_that_falls_silent_is_given_up_in_time_and_gets_the_rest_later(
    own: RealRegistry, tmp_path: Path
) -> None:
    """As `docker push` does not: with the containerd store it waits for ever."""
    blob = late_blob(tmp_path, lambda: own.send(signal.SIGSTOP))
    began = time.monotonic()
    with pytest.raises(RegistryError) as caught:
        pushing(own, tries=2).put_blob("a/b", blob)
    assert caught.value.fault is RegistryFault.SLOW
    assert time.monotonic() - began < 90.0
    own.send(signal.SIGCONT)
    assert connected(own).put_blob("a/b", blob) == blob.size_bytes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB, which fills."""
    if os.geteuid():
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place))
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(("umount", "--lazy", str(place)), check=True)


@pytest.mark.docker
@pytest.mark.parametrize("size", [12 * 2**20, 40 * 2**20])
def test_a_full_registry_is_said_to_be_full(tmp_path: Path, small_disk: Path, size: int) -> None:
    with real_registry(tmp_path / "registry", data=small_disk) as full:
        client = connected(full)
        client.put_blob("a/b", bytes_blob(os.urandom(5 * 2**20)))
        with pytest.raises(RegistryError) as caught:
            client.put_blob("a/b", bytes_blob(os.urandom(size)))
    assert caught.value.fault is RegistryFault.FULL
    assert "free space" in caught.value.hint


@pytest.mark.docker
def test_a_real_registry_with_deletion_off_says_so_before_anything_is_deleted(
    tmp_path: Path,
) -> None:
    with real_registry(tmp_path, tls=False, deletes=False) as started:
        line = connected(started)
        put = put_image(line, "a/b", "v1")
        assert not line.deletes("a/b")
        with pytest.raises(RegistryError, match="nothing was removed"):
            deleter_for(line, ("a/b",), started.environment, process.run)
        assert line.head("a/b", "v1") == put
