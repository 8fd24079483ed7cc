"""Images on a disk: what goes out through a folder and comes in elsewhere has the same digests;
what is wrong in one is found.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from stub_registry import (
    Fault,
    StubRegistry,
    attach_one,
    client_of,
    digest_of,
    file_blob,
    serve_registry,
)

from warpfront.errors import InputError, RegistryError, StoreError
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import (
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    Artifact,
    Blob,
    Descriptor,
    ImageManifest,
    bytes_blob,
    document_body,
    index_body,
)
from warpfront.release.registry.copying import (
    DEEPEST,
    Repository,
    copy_image,
    copy_whole,
)
from warpfront.release.registry.layout import NAME, LayoutRegistry

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"


@pytest.fixture(params=[True, False], ids=["referrers", "fallback"])
def stub(request: pytest.FixtureRequest) -> Iterator[StubRegistry]:
    with serve_registry(referrers=request.param) as found:
        yield found


@pytest.fixture
def client(stub: StubRegistry, tmp_path: Path) -> HttpRegistry:
    return client_of(stub, tmp_path)


@pytest.fixture
def layout(tmp_path: Path) -> LayoutRegistry:
    return LayoutRegistry(folder=tmp_path / "layout")


@pytest.fixture
def here(client: HttpRegistry) -> Repository:
    return Repository(registry=client, repository="a/b")


@pytest.fixture
def disk(layout: LayoutRegistry) -> Repository:
    return Repository(registry=layout, repository="any")


def put_blob(client: HttpRegistry, content: bytes, media_type: str) -> Descriptor:
    blob = bytes_blob(content)
    client.put_blob("a/b", blob)
    return Descriptor(media_type=media_type, digest=blob.digest, size_bytes=blob.size_bytes)


def put_image(client: HttpRegistry, machine: str) -> Descriptor:
    config = put_blob(client, json.dumps({"os": "linux", "architecture": machine}).encode(), CONFIG)
    layers = [put_blob(client, os.urandom(2000), LAYER) for _ in range(2)]
    body = document_body(ImageManifest(config=config, layers=tuple(layers)))
    return client.put_manifest("a/b", machine, body, IMAGE_MANIFEST)


def attach(client: HttpRegistry, subject: Descriptor, kind: str) -> Descriptor:
    return attach_one(
        client,
        "a/b",
        subject,
        Artifact(
            artifact_type=f"application/{kind}",
            payload=kind.encode(),
            annotations={"kind": kind},
        ),
    )


@pytest.fixture
def published(client: HttpRegistry) -> Descriptor:
    """An index of two images, with documents about it and one of them, and a document's own."""
    images = [put_image(client, machine) for machine in ("amd64", "arm64")]
    index = client.put_manifest("a/b", "all", index_body(images), IMAGE_INDEX)
    attach(client, images[0], "sbom")
    attach(client, attach(client, index, "provenance"), "signature")
    return index


def test_everything_goes_through_a_folder_and_keeps_its_digest(
    stub: StubRegistry, here: Repository, disk: Repository, published: Descriptor, tmp_path: Path
) -> None:
    assert isinstance(disk.registry, LayoutRegistry)
    copied = copy_whole(here, disk, published.digest)
    assert disk.registry.referrers("", published.digest) == here.registry.referrers(
        "a/b", published.digest
    )
    (tmp_path / "other").mkdir()
    with serve_registry(referrers=stub.referrers) as other:
        there = Repository(registry=client_of(other, tmp_path / "other"), repository="c/d")
        assert copy_whole(disk, there, published.digest) == copied > 0
        assert documents_of(other) == documents_of(stub)
        assert there.registry.head("c/d", published.digest) == published
        assert there.registry.referrers("c/d", published.digest) == here.registry.referrers(
            "a/b", published.digest
        )
        assert copy_whole(disk, there, published.digest) == 0


def test_where_one_blob_fails_the_others_are_read_no_further(tmp_path: Path) -> None:
    """And who is stopped in the middle of a gigabyte does not wait for the rest of it."""
    disk = Repository(registry=LayoutRegistry(folder=tmp_path, checked=True), repository="")
    config, layer = bytes_blob(b"{}"), bytes_blob(b"x" * 100)
    for blob in (config, layer):
        disk.registry.put_blob("", blob)
    parts = [
        Descriptor(media_type=kind, digest=one.digest, size_bytes=one.size_bytes)
        for kind, one in ((CONFIG, config), (LAYER, layer))
    ]
    body = document_body(ImageManifest(config=parts[0], layers=tuple(parts[1:])))
    image = disk.registry.put_manifest("", "v1", body, IMAGE_MANIFEST)
    began = threading.Event()

    class Failing(LayoutRegistry):
        def put_blob(self, repository: str, source: Blob, mount_from: Sequence[str] = ()) -> int:
            del repository, mount_from
            if source.digest == config.digest:
                assert began.wait(10)
                raise StoreError("no room")
            with source.open() as file:
                while True:
                    file.read(1)
                    file.seek(0)
                    began.set()

    target = Repository(registry=Failing(folder=tmp_path / "other"), repository="")
    with pytest.raises(StoreError, match="no room"):
        copy_image(disk, target, image.digest)


def documents_of(stub: StubRegistry) -> set[str]:
    """What was published, without the lists that stand in for the referrers API."""
    lists = {digest for (_, tag), digest in stub.tags.items() if tag.startswith("sha256-")}
    return {digest for _, digest in stub.manifests} - lists


def test_signatures_that_are_kept_under_tags_go_with_their_image(
    client: HttpRegistry, here: Repository, disk: Repository
) -> None:
    image, signature = put_image(client, "amd64"), put_image(client, "signature")
    tag = f"{image.digest.replace(':', '-')}.sig"
    found = client.manifest("a/b", "signature")
    assert found is not None
    client.put_manifest("a/b", tag, found.body, IMAGE_MANIFEST)
    copy_whole(here, disk, image.digest)
    assert disk.registry.tags("") == (tag,)
    assert disk.registry.head("", tag) == signature


def test_what_a_folder_has_is_not_fetched_again_unless_it_is_damaged(
    stub: StubRegistry, here: Repository, disk: Repository, published: Descriptor
) -> None:
    layout = disk.registry
    assert isinstance(layout, LayoutRegistry)
    copy_whole(here, disk, published.digest)
    before = stub.steps().count("get blob")
    assert copy_whole(here, disk, published.digest) == 0
    assert stub.steps().count("get blob") == before
    blob = max((layout.folder / "blobs" / "sha256").iterdir(), key=lambda one: one.stat().st_size)
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    copy_whole(here, disk, published.digest)
    assert blob.read_bytes() == content


def test_between_repositories_of_one_registry_blobs_are_mounted(
    client: HttpRegistry, here: Repository, published: Descriptor
) -> None:
    copied = copy_image(here, Repository(registry=client, repository="c/d"), published.digest)
    assert copied == 0


def test_a_copy_that_breaks_off_names_nothing(
    stub: StubRegistry, here: Repository, disk: Repository, published: Descriptor
) -> None:
    stub.fail("get blob", Fault(status=403, spare=2))
    with pytest.raises(RegistryError):
        copy_image(here, disk, published.digest)
    assert not (Path(disk.registry.host) / "index.json").exists()


def an_index(layout: LayoutRegistry, tag: str = "v1", **annotations: str) -> Descriptor:
    return layout.put_manifest("", tag, index_body([], annotations), IMAGE_INDEX)


def test_a_tag_in_a_folder_moves_and_what_is_part_of_more_is_named_once(
    layout: LayoutRegistry,
) -> None:
    first, second = an_index(layout, "v1", a="1"), an_index(layout, "v2", a="2")
    layout.put_manifest("", "v2", index_body([], {"a": "1"}), IMAGE_INDEX)
    assert layout.tags("") == ("v1", "v2")
    assert {one.digest for one in layout.listed()} == {first.digest}
    assert layout.head("", second.digest) == second, "its bytes stay"
    by_digest = layout.put_manifest("", second.digest, index_body([], {"a": "2"}), IMAGE_INDEX)
    assert by_digest.digest in {one.digest for one in layout.listed()}
    layout.put_manifest("", "all", index_body([first, second]), IMAGE_INDEX)
    assert [one.annotations.get(NAME) for one in layout.listed()] == ["v1", "v2", "all"]


def test_a_file_of_this_disk_becomes_a_blob_without_a_copy(
    tmp_path: Path, layout: LayoutRegistry
) -> None:
    file = tmp_path / "layer"
    file.write_bytes(b"layer")
    blob = file_blob(file, digest_of(b"layer"), 5)
    assert layout.put_blob("", blob) == 5
    assert layout.blob_path(blob.digest).stat().st_ino == file.stat().st_ino
    with pytest.raises(RegistryError, match="is damaged"):
        layout.put_blob("", file_blob(file, digest_of(b"other"), 5))
    assert [one.name for one in layout.blob_path(blob.digest).parent.iterdir()] == [
        blob.digest.removeprefix("sha256:")
    ]


@pytest.mark.parametrize("kind", ["a FIFO", "a link", "a folder"])
def test_what_is_in_a_folder_of_a_stranger_is_a_regular_file(
    layout: LayoutRegistry, tmp_path: Path, kind: str
) -> None:
    named = an_index(layout)
    place = layout.blob_path(named.digest)
    place.unlink()
    if kind == "a FIFO":
        os.mkfifo(place)
    elif kind == "a folder":
        place.mkdir()
    else:
        place.symlink_to("/etc/passwd")
    for read in (
        lambda: layout.manifest("", "v1"),
        lambda: layout.blob("", named.digest, 1000),
        lambda: layout.save_blob("", named.digest, tmp_path / "saved", named.size_bytes),
    ):
        with pytest.raises(RegistryError, match=kind) as caught:
            read()
        assert caught.value.registry == str(layout.folder)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("oci-layout", ""),
        ("oci-layout", '{"imageLayoutVersion": "2"}'),
        ("index.json", "[]"),
        ("index.json", json.dumps({"schemaVersion": 2, "manifests": [{"digest": "../../x"}]})),
        ("oci-layout", None),
    ],
)
def test_a_folder_that_is_no_layout_is_said(
    layout: LayoutRegistry, file: str, text: str | None
) -> None:
    an_index(layout)
    (layout.folder / file).unlink()
    if text is not None:
        (layout.folder / file).write_text(text)
    with pytest.raises(RegistryError):
        layout.tags("")


def test_a_blob_of_a_folder_has_the_size_that_its_descriptor_says(
    layout: LayoutRegistry, tmp_path: Path
) -> None:
    blob = bytes_blob(b"x" * 100)
    layout.put_blob("", blob)
    with pytest.raises(RegistryError, match="has 100 of 99 bytes"):
        layout.save_blob("", blob.digest, tmp_path / "saved", 99)
    layout.save_blob("", blob.digest, tmp_path / "saved", 100)
    assert (tmp_path / "saved").read_bytes() == blob.open().read()


def test_a_folder_of_something_else_is_no_layout(layout: LayoutRegistry) -> None:
    assert layout.tags("") == ()
    layout.folder.mkdir()
    assert layout.tags("") == ()
    (layout.folder / "notes").write_text("x")
    with pytest.raises(RegistryError, match="is it an OCI image layout"):
        layout.tags("")


def test_a_manifest_of_another_content_in_its_place_is_noticed(layout: LayoutRegistry) -> None:
    named = an_index(layout)
    layout.blob_path(named.digest).write_bytes(index_body([], {"b": "c"}))
    with pytest.raises(RegistryError, match="is damaged"):
        layout.manifest("", "v1")


def nested(stub: StubRegistry, levels: int) -> str:
    body = index_body([])
    for _ in range(levels):
        digest = stub.keep_manifest("a/b", "", body, IMAGE_INDEX)
        child = Descriptor(media_type=IMAGE_INDEX, digest=digest, size_bytes=len(body))
        body = index_body([child])
    return stub.keep_manifest("a/b", "", body, IMAGE_INDEX)


def test_an_index_of_indexes_of_indexes_has_an_end(
    stub: StubRegistry, here: Repository, disk: Repository
) -> None:
    copy_image(here, disk, nested(stub, DEEPEST))
    with pytest.raises(InputError, match=f"more than {DEEPEST} levels"):
        copy_image(here, disk, nested(stub, DEEPEST + 1))


def test_a_child_is_there_and_is_what_its_index_says(
    stub: StubRegistry, here: Repository, disk: Repository
) -> None:
    body = index_body([])
    digest = stub.keep_manifest("a/b", "", body, IMAGE_INDEX)
    for named, reason in (
        (Descriptor(media_type=IMAGE_MANIFEST, digest=digest, size_bytes=len(body)), "is not what"),
        (Descriptor(media_type=IMAGE_INDEX, digest=digest, size_bytes=1), "is not what"),
        (Descriptor(media_type=IMAGE_INDEX, digest=digest_of(b"x"), size_bytes=1), "is not there"),
    ):
        parent = stub.keep_manifest("a/b", "", index_body([named]), IMAGE_INDEX)
        with pytest.raises(InputError, match=reason):
            copy_image(here, disk, parent)
    with pytest.raises(InputError, match="is not there"):
        copy_whole(here, disk, digest_of(b"x"))
