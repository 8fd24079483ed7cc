"""Images on a disk: what goes out through a folder and comes in elsewhere has the same digests;
what is wrong in one is found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from stub_registry import Fault, StubRegistry, client_of, digest_of, serve_registry

from warpfront.errors import InputError, RegistryError
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import (
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    BytesBlob,
    Descriptor,
    Platform,
    Transfer,
)
from warpfront.release.registry.copying import DEEPEST, export_image, import_image
from warpfront.release.registry.documents import as_object, index_body
from warpfront.release.registry.layout import FileBlob, Layout

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
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "layout")


def put_blob(client: HttpRegistry, content: bytes, media_type: str) -> Descriptor:
    blob = BytesBlob(content)
    client.put_blob("a/b", blob)
    return Descriptor(media_type=media_type, digest=blob.digest, size_bytes=blob.size_bytes)


def put_image(client: HttpRegistry, machine: str) -> Descriptor:
    config = put_blob(client, json.dumps({"os": "linux", "architecture": machine}).encode(), CONFIG)
    layers = [put_blob(client, os.urandom(2000), LAYER) for _ in range(2)]
    value = {
        "schemaVersion": 2,
        "mediaType": IMAGE_MANIFEST,
        "config": as_object(config),
        "layers": [as_object(one) for one in layers],
    }
    return client.put_manifest("a/b", machine, json.dumps(value).encode(), IMAGE_MANIFEST)


def attach(client: HttpRegistry, subject: Descriptor, kind: str) -> Descriptor:
    return client.attach(
        "a/b",
        subject,
        artifact_type=f"application/{kind}",
        payload=kind.encode(),
        payload_type="text/plain",
        annotations={"kind": kind},
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
    stub: StubRegistry, client: HttpRegistry, layout: Layout, published: Descriptor, tmp_path: Path
) -> None:
    copied = export_image(client, "a/b", published.digest, layout, name="all")
    assert (copied.root, copied.manifests, copied.attached) == (published, 6, 3)
    layout.check()
    (tmp_path / "other").mkdir()
    with serve_registry(referrers=stub.referrers) as other:
        target = client_of(other, tmp_path / "other")
        imported = import_image(layout, target, "c/d", name="all", tag="all")
        assert (imported.root, imported.manifests, imported.attached) == (published, 6, 3)
        assert documents_of(other) == documents_of(stub)
        assert target.head("c/d", "all") == published
        assert target.referrers("c/d", published.digest) == client.referrers(
            "a/b", published.digest
        )
        again = import_image(layout, target, "c/d", name="all", tag="all")
        assert {one.transfer for one in again.blobs} == {Transfer.PRESENT}


def documents_of(stub: StubRegistry) -> set[str]:
    """What was published, without the lists that stand in for the referrers API."""
    lists = {digest for (_, tag), digest in stub.tags.items() if tag.startswith("sha256-")}
    return {digest for _, digest in stub.manifests} - lists


def test_what_a_folder_has_is_not_fetched_again(
    stub: StubRegistry, client: HttpRegistry, layout: Layout, published: Descriptor
) -> None:
    export_image(client, "a/b", published.digest, layout)
    before = stub.steps().count("get blob")
    copied = export_image(client, "a/b", published.digest, layout)
    assert stub.steps().count("get blob") == before
    assert {one.transfer for one in copied.blobs} == {Transfer.PRESENT}


def test_but_what_was_damaged_there_is(
    client: HttpRegistry, layout: Layout, published: Descriptor
) -> None:
    export_image(client, "a/b", published.digest, layout)
    blob = max((layout.folder / "blobs" / "sha256").iterdir(), key=lambda one: one.stat().st_size)
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(InputError, match="missing, or not whole"):
        layout.check()
    export_image(client, "a/b", published.digest, layout)
    layout.check()


def test_a_second_image_joins_the_first(
    client: HttpRegistry, layout: Layout, published: Descriptor
) -> None:
    other = put_image(client, "riscv64")
    export_image(client, "a/b", published.digest, layout, name="all")
    export_image(client, "a/b", other.digest, layout, name="riscv64")
    assert layout.root("all").digest == published.digest
    assert layout.root("riscv64").digest == other.digest
    with pytest.raises(InputError, match="2 images") as caught:
        layout.root()
    assert caught.value.hint == "there are: all, riscv64"


def test_an_export_that_breaks_off_names_nothing(
    stub: StubRegistry, client: HttpRegistry, layout: Layout, published: Descriptor
) -> None:
    stub.fail("get blob", Fault(status=403, spare=2))
    with pytest.raises(RegistryError):
        export_image(client, "a/b", published.digest, layout)
    assert not (layout.folder / "index.json").exists()


def test_a_file_of_this_disk_becomes_a_blob_without_a_copy(tmp_path: Path, layout: Layout) -> None:
    file = tmp_path / "layer"
    file.write_bytes(b"layer")
    layout.begin()
    layout.link(file, digest_of(b"layer"))
    assert layout.blob_path(digest_of(b"layer")).stat().st_ino == file.stat().st_ino
    blob = FileBlob(file, digest_of(b"layer"), 5)
    with blob.open() as opened:
        assert opened.read() == b"layer"


def an_empty(layout: Layout, body: bytes = index_body([])) -> Descriptor:
    layout.begin()
    layout.write(body)
    named = Descriptor(media_type=IMAGE_INDEX, digest=digest_of(body), size_bytes=len(body))
    layout.write_list([named])
    return named


def test_a_blob_of_a_stranger_is_a_regular_file_of_its_size(layout: Layout) -> None:
    named = an_empty(layout)
    place = layout.blob_path(named.digest)
    place.write_bytes(b"{}")
    with pytest.raises(InputError, match="2 of"):
        layout.source(named)
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(InputError, match="a FIFO"):
        layout.source(named)
    with pytest.raises(InputError, match="a FIFO"):
        layout.manifest(named.digest)
    place.unlink()
    place.symlink_to("/etc/passwd")
    with pytest.raises(InputError, match="a link"):
        layout.source(named)
    with pytest.raises(InputError, match="a link"):
        layout.manifest(named.digest)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"imageLayoutVersion": "2"}', "\xff"])
def test_a_folder_that_is_no_layout_is_said(layout: Layout, text: str) -> None:
    an_empty(layout)
    (layout.folder / "oci-layout").write_text(text)
    with pytest.raises(InputError, match="oci-layout"):
        layout.listed()
    (layout.folder / "oci-layout").unlink()
    with pytest.raises(InputError, match="no such file") as caught:
        layout.listed()
    assert "OCI image layout?" in caught.value.hint


def nested(stub: StubRegistry, levels: int) -> str:
    body = index_body([])
    for _ in range(levels):
        digest = stub.keep_manifest("a/b", "", body, IMAGE_INDEX)
        child = Descriptor(media_type=IMAGE_INDEX, digest=digest, size_bytes=len(body))
        body = index_body([child])
    return stub.keep_manifest("a/b", "", body, IMAGE_INDEX)


def test_an_index_of_indexes_of_indexes_has_an_end(
    stub: StubRegistry, client: HttpRegistry, layout: Layout
) -> None:
    export_image(client, "a/b", nested(stub, DEEPEST), layout)
    with pytest.raises(InputError, match=f"more than {DEEPEST} levels"):
        export_image(client, "a/b", nested(stub, DEEPEST + 1), layout)


def test_a_child_is_what_its_index_says_that_it_is(
    stub: StubRegistry, client: HttpRegistry, layout: Layout
) -> None:
    digest = stub.keep_manifest("a/b", "", index_body([]), IMAGE_INDEX)
    for named in (
        Descriptor(media_type=IMAGE_MANIFEST, digest=digest, size_bytes=len(index_body([]))),
        Descriptor(media_type=IMAGE_INDEX, digest=digest, size_bytes=1),
    ):
        parent = stub.keep_manifest("a/b", "", index_body([named]), IMAGE_INDEX)
        with pytest.raises(InputError, match="not what its descriptor says"):
            export_image(client, "a/b", parent, layout)


def test_a_child_that_is_not_there_is_missed(
    stub: StubRegistry, client: HttpRegistry, layout: Layout
) -> None:
    missing = Descriptor(
        media_type=IMAGE_INDEX,
        digest=digest_of(b"gone"),
        size_bytes=4,
        platform=Platform(os="linux", architecture="arm64"),
    )
    parent = stub.keep_manifest("a/b", "", index_body([missing]), IMAGE_INDEX)
    with pytest.raises(InputError, match="named, and not there"):
        export_image(client, "a/b", parent, layout)
