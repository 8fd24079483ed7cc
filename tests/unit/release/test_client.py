"""What the registry client does where nothing goes wrong, against a small real one on loopback."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stub_registry import (
    PASSWORD,
    Fault,
    StubRegistry,
    attach_one,
    client_of,
    digest_of,
    serve_registry,
)

from warpfront.errors import InputError, RegistryError, RegistryFault
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import (
    EMPTY_BODY,
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    Artifact,
    Descriptor,
    RegistryManifest,
    bytes_blob,
    index_body,
)

CONFIG = b'{"architecture":"amd64","os":"linux"}'
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
IN_PIECES = {"whole_bytes": 1000, "piece_bytes": 2000}


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with serve_registry() as found:
        yield found


@pytest.fixture
def client(stub: StubRegistry, tmp_path: Path) -> HttpRegistry:
    return client_of(stub, tmp_path, sizes=IN_PIECES)


def an_image(client: HttpRegistry, tag: str = "v1", repository: str = "a/b") -> Descriptor:
    """One without layers, put under a tag."""
    config = bytes_blob(CONFIG)
    client.put_blob(repository, config)
    said = {"mediaType": CONFIG_TYPE, "digest": config.digest, "size": config.size_bytes}
    value = {"schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": said, "layers": []}
    return client.put_manifest(repository, tag, json.dumps(value).encode(), IMAGE_MANIFEST)


def test_what_is_not_there_is_none(client: HttpRegistry) -> None:
    assert client.manifest("a/b", "v1") is None
    assert client.head("a/b", digest_of(b"nothing")) is None
    assert client.tags("a/b") == ()
    assert client.referrers("a/b", digest_of(b"nothing")) == ()
    client.delete("a/b", digest_of(b"nothing"))


@pytest.mark.parametrize("auth", ["", "basic", "bearer"])
def test_what_was_put_is_what_is_found(stub: StubRegistry, client: HttpRegistry, auth: str) -> None:
    stub.auth = auth
    put = an_image(client)
    found = client.manifest("a/b", "v1")
    assert found is not None
    assert found.descriptor == put
    assert digest_of(found.body) == put.digest
    assert client.head("a/b", "v1") == client.head("a/b", put.digest) == put
    assert client.blob("a/b", digest_of(CONFIG), 1000) == CONFIG
    assert client.tags("a/b") == ("v1",)
    client.delete("a/b", put.digest)
    assert client.tags("a/b") == ()


def test_head_asks_for_the_whole_where_the_registry_names_no_digest(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.says_digests = False
    put = an_image(client)
    assert client.head("a/b", "v1") == put


def test_a_token_is_asked_for_what_is_done_and_never_for_what_the_registry_would_like(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.auth = "bearer"
    an_image(client)
    client.put_blob("c/d", bytes_blob(CONFIG), mount_from=["a/b"])
    client.delete("a/b", digest_of(b"nothing"))
    assert sorted(stub.tokens.values()) == [
        "repository:a/b:delete,pull",
        "repository:a/b:pull,push",
        "repository:c/d:pull,push",
        "repository:c/d:pull,push repository:a/b:pull",
    ]
    assert not any("somebody/else" in scopes for scopes in stub.tokens.values())


def test_a_token_that_has_ended_is_asked_for_anew_once(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.auth = "bearer"
    an_image(client)
    stub.tokens.clear()
    an_image(client, "v2")
    assert stub.steps().count("token") == 2


def test_without_a_login_an_anonymous_token_will_do(stub: StubRegistry, tmp_path: Path) -> None:
    stub.auth = "bearer"
    client = client_of(stub, tmp_path, login=False)
    assert client.manifest("a/b", "v1") is None
    assert not any(shown.startswith("Basic") for shown in stub.shown())


def test_a_registry_that_wants_no_login_is_shown_none(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    an_image(client)
    assert stub.shown() == set()


def test_a_small_blob_takes_three_requests_and_is_not_sent_again(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    blob = bytes_blob(b"small")
    assert client.put_blob("a/b", blob) == 5
    assert client.put_blob("a/b", blob) == 0
    assert stub.steps() == ["head blob", "begin", "close", "head blob"]


def test_a_large_blob_goes_in_pieces(stub: StubRegistry, client: HttpRegistry) -> None:
    blob = bytes_blob(os.urandom(5000))
    assert client.put_blob("a/b", blob) == 5000
    assert stub.steps() == ["head blob", "begin", *["piece"] * 3, "close"]
    assert stub.blobs["a/b", blob.digest] == blob.open().read()


def test_an_empty_blob_is_one(stub: StubRegistry, client: HttpRegistry) -> None:
    client.put_blob("a/b", bytes_blob(b""))
    assert stub.blobs["a/b", digest_of(b"")] == b""


def test_pieces_are_as_large_as_the_registry_wants_them_at_least(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.fail("begin", Fault(headers={"OCI-Chunk-Min-Length": "4000"}))
    client.put_blob("a/b", bytes_blob(os.urandom(5000)))
    assert stub.steps().count("piece") == 2


def test_a_registry_that_takes_no_pieces_gets_all_at_once(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.pieces = False
    blob = bytes_blob(os.urandom(5000))
    client.put_blob("a/b", blob)
    assert stub.blobs["a/b", blob.digest] == blob.open().read()


def test_a_registry_that_takes_one_piece_and_no_more_gets_all_at_once(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    blob = bytes_blob(os.urandom(5000))
    stub.fail("piece", Fault(every=2, status=416))
    client.put_blob("a/b", blob)
    assert stub.blobs["a/b", blob.digest] == blob.open().read()
    assert stub.steps()[-1] == "close"


def test_no_proxy_leads_to_this_machine_and_one_to_all_others(
    stub: StubRegistry,
    client: HttpRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve_registry() as dead:
        pass
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://{dead.host}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert client.tags("a/b") == ()
    stub.host = "registry.example"
    with pytest.raises(RegistryError, match="the proxy does not let us through") as caught:
        client_of(stub, tmp_path).tags("a/b")
    assert caught.value.fault is RegistryFault.UNREACHABLE


def test_a_blob_of_another_repository_is_mounted(stub: StubRegistry, client: HttpRegistry) -> None:
    blob = bytes_blob(b"x" * 3000)
    client.put_blob("a/b", blob)
    assert client.put_blob("c/d", blob, mount_from=["c/d", "no/where", "a/b"]) == 0
    assert stub.blobs["c/d", blob.digest] == blob.open().read()
    assert stub.uploads == {}, "what `no/where` began is ended"


@pytest.mark.parametrize("fault", [Fault(), Fault(status=404, times=1), Fault(status=403, times=1)])
def test_what_cannot_be_mounted_is_sent(
    stub: StubRegistry, client: HttpRegistry, fault: Fault
) -> None:
    blob = bytes_blob(b"x" * 3000)
    client.put_blob("a/b", blob)
    stub.mounts = False
    stub.fail("begin", fault)
    assert client.put_blob("c/d", blob, mount_from=["a/b"]) == 3000
    assert stub.blobs["c/d", blob.digest] == blob.open().read()
    assert stub.uploads == {}


def test_threads_may_share_a_client(stub: StubRegistry, client: HttpRegistry) -> None:
    stub.auth = "bearer"
    blobs = [bytes_blob(os.urandom(3000)) for _ in range(16)]
    with ThreadPoolExecutor(8) as threads:
        sent = list(threads.map(lambda blob: client.put_blob("a/b", blob), blobs))
    assert sent == [3000] * 16
    assert {digest for _, digest in stub.blobs} == {blob.digest for blob in blobs}
    assert len(stub.tokens) == 1


def test_connections_are_used_again(stub: StubRegistry, client: HttpRegistry) -> None:
    an_image(client)
    client.put_blob("a/b", bytes_blob(os.urandom(9000)))
    client.tags("a/b")
    assert len(stub.requests) > 10
    assert stub.connections == 2, "one to find out that it speaks no TLS, one for the rest"


@pytest.mark.parametrize("referrers", [True, False])
def test_what_is_attached_is_found_whether_or_not_the_registry_lists_it(
    stub: StubRegistry, client: HttpRegistry, *, referrers: bool
) -> None:
    stub.referrers = referrers
    subject = an_image(client)
    attached = [
        attach_one(
            client,
            "a/b",
            subject,
            Artifact(
                artifact_type=f"application/{kind}",
                payload=kind.encode(),
                annotations={"kind": kind},
            ),
        )
        for kind in ("sbom", "provenance", "sbom")
    ]
    assert attached[0] == attached[2], "the same document twice is one"
    found = client.referrers("a/b", subject.digest)
    assert found == tuple(attached[:2])
    assert [one.annotations["kind"] for one in found] == ["sbom", "provenance"]
    tags = {"v1"} if referrers else {"v1", subject.digest.replace(":", "-")}
    assert set(client.tags("a/b")) == tags
    document = client.manifest("a/b", found[0].digest)
    assert document is not None
    value = json.loads(document.body)
    assert value["subject"]["digest"] == subject.digest
    assert value["config"]["digest"] == digest_of(EMPTY_BODY)
    assert client.blob("a/b", value["layers"][0]["digest"], 100) == b"sbom"


def test_a_list_of_what_is_attached_that_another_overwrote_is_written_again(
    stub: StubRegistry, client: HttpRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.referrers = False
    subject = an_image(client)
    tag = subject.digest.replace(":", "-")
    put = client._put
    times: list[int] = []

    def put_and_lose(
        repository: str, reference: str, body: bytes, media_type: str
    ) -> tuple[RegistryManifest, str]:
        said = put(repository, reference, body, media_type)
        if reference == tag and not times:
            times.append(1)
            put(repository, tag, index_body([subject]), IMAGE_INDEX)
        return said

    monkeypatch.setattr(client, "_put", put_and_lose)
    attached = attach_one(
        client,
        "a/b",
        subject,
        Artifact(
            artifact_type="application/x",
            payload=b"x",
            annotations={},
        ),
    )
    listed = [one.digest for one in client.referrers("a/b", subject.digest)]
    assert listed == [subject.digest, attached.digest], "and what the other wrote stays"


def test_tags_are_read_to_the_last_page(stub: StubRegistry, client: HttpRegistry) -> None:
    stub.page = 2
    for number in range(5):
        an_image(client, f"v{number}")
    assert client.tags("a/b") == ("v0", "v1", "v2", "v3", "v4")
    assert stub.steps().count("tags") == 3


def test_a_blob_is_saved_whole_and_readable(
    stub: StubRegistry, client: HttpRegistry, tmp_path: Path
) -> None:
    content = os.urandom(300_000)
    digest = stub.keep("a/b", content)
    place = tmp_path / "new" / "folder" / "blob"
    client.save_blob("a/b", digest, place, len(content))
    assert place.read_bytes() == content
    assert [one.name for one in place.parent.iterdir()] == ["blob"]


def test_a_blob_is_read_as_it_comes(stub: StubRegistry, client: HttpRegistry) -> None:
    content = os.urandom(300_000)
    with client.open_blob("a/b", stub.keep("a/b", content)) as file:
        assert file.read(10) == content[:10]
        assert file.read() == content[10:]


def test_an_index_is_put_and_found(client: HttpRegistry) -> None:
    child = an_image(client)
    put = client.put_manifest("a/b", "all", index_body([child]), IMAGE_INDEX)
    found = client.manifest("a/b", "all")
    assert found is not None
    assert (found.descriptor, put.media_type) == (put, IMAGE_INDEX)


@pytest.mark.parametrize(
    ("repository", "reference"),
    [
        ("a/b", "../../x"),
        ("a/b", "v1?x"),
        ("a/b", "sha256:abc"),
        ("a/../b", "v1"),
        ("A/b", "v1"),
        ("a//b", "v1"),
        ("a/b", ""),
        ("a/b", "v1\r\nX: y"),
    ],
)
def test_nothing_but_names_becomes_part_of_an_address(
    stub: StubRegistry, client: HttpRegistry, repository: str, reference: str
) -> None:
    for verb in (client.manifest, client.head, client.delete):
        with pytest.raises(InputError):
            verb(repository, reference)
    with pytest.raises(InputError):
        client.put_manifest(repository, reference, b"{}", IMAGE_MANIFEST)
    assert stub.steps() == []


def test_a_manifest_is_put_under_no_digest_but_its_own(client: HttpRegistry) -> None:
    with pytest.raises(InputError, match="what should be put there is"):
        client.put_manifest("a/b", digest_of(b"other"), index_body([]), IMAGE_INDEX)


def test_a_wrong_password_is_tried_once_and_never_said(stub: StubRegistry, tmp_path: Path) -> None:
    stub.auth = "basic"
    (tmp_path / "config.json").write_text(
        json.dumps({"auths": {stub.host: {"username": "x", "password": PASSWORD + "!"}}})
    )
    client = client_of(stub, tmp_path)
    with pytest.raises(RegistryError, match="login for it is refused") as caught:
        client.manifest("a/b", "v1")
    assert caught.value.fault is RegistryFault.REFUSED
    assert caught.value.hint == f"docker login {stub.host}"
    assert stub.steps() == ["get manifest"] * 2
    with pytest.raises(RegistryError, match="login for it is refused"):
        client.manifest("a/b", "v1")
    assert stub.steps() == ["get manifest"] * 3, "it is not shown twice"
