"""Which machine an image is for, by a program in it; and an index that only takes what it names."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from elf_images import AARCH64, X86_64, elf, layer
from stub_registry import StubRegistry, client_of, serve_registry

from warpfront.errors import InputError, RegistryError
from warpfront.release.registry import architectures
from warpfront.release.registry.architectures import (
    architecture_found,
    part_for,
    put_index,
)
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import (
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    Descriptor,
    ImageManifest,
    Platform,
    bytes_blob,
    document_body,
    index_body,
)

PACKINGS = {
    "tar": lambda content: content,
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with serve_registry() as found:
        yield found


@pytest.fixture
def client(stub: StubRegistry, tmp_path: Path) -> HttpRegistry:
    return client_of(stub, tmp_path)


def put(client: HttpRegistry, machine: str, *layers: bytes, tag: str = "v1") -> Descriptor:
    parts = []
    config = json.dumps({"os": "linux", "architecture": machine}).encode()
    for content, kind in ((config, "config"), *((one, "layer") for one in layers)):
        blob = bytes_blob(content)
        client.put_blob("a/b", blob)
        said = Descriptor(
            media_type=f"application/{kind}", digest=blob.digest, size_bytes=blob.size_bytes
        )
        parts.append(said)
    body = document_body(ImageManifest(config=parts[0], layers=tuple(parts[1:])))
    return client.put_manifest("a/b", tag, body, IMAGE_MANIFEST)


def found_in(client: HttpRegistry, image: Descriptor, limit_bytes: int = 2**20) -> tuple[str, str]:
    manifest = client.manifest("a/b", image.digest)
    assert manifest is not None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(architectures, "UNPACKED_LIMIT_BYTES", limit_bytes)
        return architecture_found(client, "a/b", manifest)[1:]


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("number", "machine"), [(X86_64, "amd64"), (AARCH64, "arm64")])
def test_the_machine_of_the_first_program_is_found(
    client: HttpRegistry, packing: str, number: int, machine: str
) -> None:
    files = {
        "etc/passwd": b"x" * 2000,
        "etc/elf": elf(1),
        "./usr/bin/script": b"#!/bin/sh\n" + b"#" * 100,
        "./usr/bin/env": elf(number),
        "usr/bin/later": elf(1),
    }
    image = put(client, "any", layer({"etc/empty": b""}), PACKINGS[packing](layer(files)))
    assert found_in(client, image) == (machine, "usr/bin/env")


@pytest.mark.parametrize(
    ("program", "machine"),
    [
        (elf(22, order=">"), "s390x"),
        (elf(40), "ELF machine 40"),
        (elf(62)[:19], ""),
        (b"", ""),
        (b"MZ" + b"\0" * 100, ""),
    ],
)
def test_what_is_no_program_for_a_known_machine_is_not_taken_for_one(
    client: HttpRegistry, program: bytes, machine: str
) -> None:
    image = put(client, "any", layer({"bin/x": program}))
    assert found_in(client, image)[0] == machine


def test_no_more_is_unpacked_than_the_limit(client: HttpRegistry) -> None:
    image = put(client, "any", layer({"etc/large": b"\0" * 50_000, "bin/x": elf(X86_64)}))
    assert found_in(client, image, 40_000) == ("", "")
    assert found_in(client, image, 80_000) == ("amd64", "bin/x")


def test_no_more_is_fetched_than_the_first_program_takes(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    image = put(client, "any", layer({"bin/x": elf(X86_64)}), layer({"bin/y": elf(AARCH64)}))
    before = stub.steps().count("get blob")
    assert found_in(client, image) == ("amd64", "bin/x")
    assert stub.steps().count("get blob") == before + 2, "the config and one layer"


@pytest.mark.parametrize(
    "content",
    [b"no tar", gzip.compress(b"no tar"), b"\x1f\x8b\x08broken"],
    ids=["no tar", "no tar in gzip", "no gzip"],
)
def test_a_layer_that_cannot_be_read_is_said(client: HttpRegistry, content: bytes) -> None:
    with pytest.raises(RegistryError, match="cannot be read"):
        found_in(client, put(client, "any", content))


def child(image: Descriptor, machine: str) -> Descriptor:
    platform = Platform(os="linux", architecture=machine)
    return dataclasses.replace(image, platform=platform)


def test_an_index_is_put_last_and_says_what_its_children_are(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    amd64 = put(client, "amd64", layer({"bin/x": elf(X86_64)}))
    arm64 = put(client, "arm64", layer({"bin/x": elf(AARCH64)}))
    index = put_index(client, "a/b", [child(amd64, "amd64"), child(arm64, "arm64")])
    found = client.manifest("a/b", index.descriptor.digest)
    assert found == index
    assert found.descriptor.media_type == IMAGE_INDEX
    machines = [one["platform"]["architecture"] for one in json.loads(found.body)["manifests"]]
    assert machines == ["amd64", "arm64"]
    assert [step for step in stub.steps() if "put" in step] == ["put manifest"] * 3


@pytest.mark.parametrize(
    ("config", "number", "reason"),
    [
        ("arm64", X86_64, "/bin/x in it is for amd64"),
        ("amd64", AARCH64, "its config says linux/amd64"),
        ("arm64", 0, "is for ELF machine 0"),
    ],
)
def test_a_child_of_another_machine_is_refused_and_nothing_put(
    stub: StubRegistry, client: HttpRegistry, config: str, number: int, reason: str
) -> None:
    amd64 = put(client, "amd64", layer({"bin/x": elf(X86_64)}))
    other = put(client, config, layer({"bin/x": elf(number)}), tag="other")
    with pytest.raises(InputError, match=reason) as caught:
        put_index(client, "a/b", [child(amd64, "amd64"), child(other, "arm64")])
    assert other.digest in str(caught.value)
    assert amd64.digest not in str(caught.value)
    assert [one for one in stub.steps() if one == "put manifest"] == ["put manifest"] * 2


def test_an_image_without_a_program_is_refused(client: HttpRegistry) -> None:
    image = put(client, "amd64", layer({"etc/x": b""}))
    with pytest.raises(InputError, match="no program was found"):
        put_index(client, "a/b", [child(image, "amd64")])


def test_two_images_for_one_platform_none_and_an_index_are_refused(client: HttpRegistry) -> None:
    image = put(client, "amd64", layer({"bin/x": elf(X86_64)}))
    index = client.put_manifest("a/b", "list", index_body([image]), IMAGE_INDEX)
    with pytest.raises(InputError, match="two images for one platform"):
        put_index(client, "a/b", [child(image, "amd64"), child(image, "amd64")])
    with pytest.raises(InputError, match="empty"):
        put_index(client, "a/b", [])
    with pytest.raises(InputError, match="no one machine"):
        put_index(client, "a/b", [child(index, "amd64")])
    gone = Descriptor(media_type=IMAGE_MANIFEST, digest="sha256:" + "0" * 64, size_bytes=1)
    with pytest.raises(InputError, match="not there"):
        put_index(client, "a/b", [child(gone, "amd64")])


def test_of_an_index_the_part_for_a_machine_is_found(client: HttpRegistry) -> None:
    amd64 = put(client, "amd64", layer({"bin/x": elf(X86_64)}))
    other = put(client, "amd64", layer({"bin/y": elf(X86_64)}), tag="other")
    windows = Platform(os="windows", architecture="amd64")
    listed = [
        replace(amd64, platform=child(amd64, "amd64").platform),
        replace(other, platform=windows),
    ]
    index = client.put_manifest("a/b", "all", index_body(listed), IMAGE_INDEX).digest
    assert part_for(client, "a/b", index, "x86_64") == amd64.digest
    assert part_for(client, "a/b", amd64.digest, "aarch64") == amd64.digest
    assert part_for(client, "a/b", "nothing", "x86_64") == "nothing"
    with pytest.raises(InputError, match="is an index without arm64") as caught:
        part_for(client, "a/b", index, "aarch64")
    assert f"amd64 {amd64.digest}" in caught.value.hint
