"""A registry that wants our login, our memory, or our belief."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from fakes import FakeRegistry
from stub_registry import (
    INDEX,
    PASSWORD,
    Clock,
    Fault,
    StubRegistry,
    client_of,
    digest_of,
    serve_registry,
)

from warpfront.errors import RegistryError, RegistryFault
from warpfront.release.evidence import VERIFICATION_TYPE, read_attached
from warpfront.release.publication import MOVES_TYPE, aliases_before
from warpfront.release.registry.authorization import Credentials
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import (
    DOCKER_MANIFEST,
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    MANIFEST_LIMIT_BYTES,
    Artifact,
    Descriptor,
    attached_payload,
    bytes_blob,
    index_body,
    read_body,
)
from warpfront.release.registry.http import Exchange, Patience
from warpfront.system.process import Command, Completed

CONTENT = b"x" * 5000
OTHER = digest_of(b"something else")


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with serve_registry(auth="bearer") as found:
        yield found


@pytest.fixture
def elsewhere() -> Iterator[StubRegistry]:
    """Another host, which remembers what it is shown."""
    with serve_registry() as found:
        yield found


@pytest.fixture
def client(stub: StubRegistry, tmp_path: Path) -> HttpRegistry:
    return client_of(stub, tmp_path)


def far_away(tmp_path: Path) -> Exchange:
    def nothing_runs(command: Command) -> Completed:
        raise AssertionError(command)

    credentials = Credentials(tmp_path / "config.json", nothing_runs)
    return Exchange("registry.example", {}, credentials, Patience())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_login_does_not_follow_to_where_a_blob_is_redirected(
    stub: StubRegistry, elsewhere: StubRegistry, client: HttpRegistry, status: int
) -> None:
    digest = elsewhere.keep("a/b", CONTENT)
    where = f"http://{elsewhere.host}/v2/a/b/blobs/{digest}?signature=x"
    stub.fail("get blob", Fault(status=status, headers={"Location": where}))
    client.tags("a/b")  # has a token now
    assert client.blob("a/b", digest, 10_000) == CONTENT
    assert "Authorization" in stub.requests[-1].headers
    assert elsewhere.shown() == set()


def test_nor_to_where_an_upload_is_sent_on(
    stub: StubRegistry, elsewhere: StubRegistry, client: HttpRegistry
) -> None:
    elsewhere.uploads["x"] = bytearray()
    where = f"http://{elsewhere.host}/v2/a/b/blobs/uploads/x"
    stub.fail("begin", Fault(status=202, headers={"Location": where}))
    client.put_blob("a/b", bytes_blob(CONTENT))
    assert elsewhere.steps() == ["close"]
    assert elsewhere.shown() == set()


def test_nor_to_the_next_page_of_a_list(
    stub: StubRegistry, elsewhere: StubRegistry, client: HttpRegistry
) -> None:
    stub.keep_manifest("a/b", "v1", index_body([]), IMAGE_INDEX)
    elsewhere.keep_manifest("a/b", "v2", index_body([]), IMAGE_INDEX)
    link = f'<http://{elsewhere.host}/v2/a/b/tags/list>; rel="next"'
    stub.fail("tags", Fault(headers={"Link": link}))
    assert client.tags("a/b") == ("v1", "v2")
    assert elsewhere.shown() == set()


@pytest.mark.parametrize("auth", ["basic", "bearer"])
@pytest.mark.parametrize("step", ["get blob", "begin"])
def test_a_401_of_another_host_is_not_answered(
    stub: StubRegistry, elsewhere: StubRegistry, client: HttpRegistry, auth: str, step: str
) -> None:
    elsewhere.auth = auth
    leads = {"Location": f"http://{elsewhere.host}/v2/a/b/blobs/{digest_of(CONTENT)}"}
    if step == "begin":
        leads = {"Location": f"http://{elsewhere.host}/v2/a/b/blobs/uploads/x"}
    stub.fail(step, Fault(status=202 if step == "begin" else 307, headers=leads))
    blob = bytes_blob(CONTENT)
    act: Callable[[], object] = {
        "begin": lambda: client.put_blob("a/b", blob),
        "get blob": lambda: client.blob("a/b", blob.digest, 10_000),
    }[step]
    with pytest.raises(RegistryError) as caught:
        act()
    assert caught.value.fault is RegistryFault.REFUSED
    client.tags("a/b")
    client.put_manifest("a/b", "v1", index_body([]), IMAGE_INDEX)
    assert elsewhere.shown() == set()
    assert len(elsewhere.steps()) == 1, "nor is a token asked for there, then or later"


def leading_to(location: str) -> requests.Response:
    answer = requests.Response()
    answer.url = "https://registry.example/v2/a/b/"
    answer.headers["Location"] = location
    return answer


@pytest.mark.parametrize(
    "location",
    [
        "http://registry.example/v2/x",
        "http://cdn.example/x",
        "http://127.0.0.1:80/x",
        "file:///etc/passwd",
        "ftp://cdn.example/x",
        "https://user:password@cdn.example/x",
        "//cdn.example@evil.example/x",
        "",
    ],
)
def test_a_registry_leads_us_nowhere_without_tls(tmp_path: Path, location: str) -> None:
    exchange = far_away(tmp_path)
    with pytest.raises(RegistryError):
        exchange.next_address(leading_to(location), "step")
    assert exchange.next_address(leading_to("/x"), "step") == "https://registry.example/x"


def test_redirects_end(stub: StubRegistry, client: HttpRegistry) -> None:
    digest = digest_of(CONTENT)
    stub.fail("get blob", Fault(status=307, headers={"Location": f"/v2/a/b/blobs/{digest}"}))
    with pytest.raises(RegistryError, match="redirects again and again"):
        client.blob("a/b", digest, 10_000)
    assert stub.steps().count("get blob") == 6


def test_what_is_sent_is_not_redirected(
    stub: StubRegistry, elsewhere: StubRegistry, client: HttpRegistry
) -> None:
    where = f"http://{elsewhere.host}/v2/a/b/manifests/v1"
    stub.fail("put manifest", Fault(status=307, headers={"Location": where}))
    with pytest.raises(RegistryError, match="redirects what is sent"):
        client.put_manifest("a/b", "v1", index_body([]), IMAGE_INDEX)
    assert elsewhere.steps() == []


@pytest.mark.parametrize(
    "realm",
    ["http://tokens.example/token", "ftp://127.0.0.1/", "token", "https://u:p@tokens.example/", ""],
)
def test_a_login_is_not_sent_for_tokens_without_tls(
    stub: StubRegistry, client: HttpRegistry, realm: str
) -> None:
    stub.realm = realm or "/"
    with pytest.raises(RegistryError, match=r"it sends logins to .*(not over TLS|that is none)"):
        client.tags("a/b")
    assert not any(shown.startswith("Basic") for shown in stub.shown())


def test_a_token_is_no_header(stub: StubRegistry, client: HttpRegistry) -> None:
    stub.fail("token", Fault(instead=b'{"token": "x\\r\\nX-Evil: y"}'))
    with pytest.raises(RegistryError, match="no token"):
        client.tags("a/b")


@pytest.mark.parametrize(
    "body",
    [b"[]", b"<html>", b'{"token": 1}', b"{}", b"[" * 100_000],
    ids=["list", "page", "number", "empty", "deep"],
)
def test_what_is_no_token_is_said(stub: StubRegistry, client: HttpRegistry, body: bytes) -> None:
    stub.fail("token", Fault(instead=body))
    with pytest.raises(RegistryError, match="its token is no token"):
        client.tags("a/b")


def test_no_login_is_in_what_is_said_though_the_registry_repeats_it(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    client.tags("a/b")
    token = next(iter(stub.tokens))
    said = {"errors": [{"code": "DENIED", "message": f"{PASSWORD} {token} \x1b[31m\n"}]}
    stub.fail("tags", Fault(status=403, body=json.dumps(said).encode()))
    with pytest.raises(RegistryError, match="DENIED") as caught:
        client.tags("a/b")
    for text in (str(caught.value), caught.value.message, caught.value.hint):
        assert PASSWORD not in text
        assert token not in text
        assert "\x1b" not in text


def test_a_huge_manifest_is_not_read(stub: StubRegistry, client: HttpRegistry) -> None:
    stub.keep_manifest("a/b", "v1", b" " * (MANIFEST_LIMIT_BYTES + 1), IMAGE_INDEX)
    with pytest.raises(RegistryError, match="more than 4194304 bytes") as caught:
        client.manifest("a/b", "v1")
    assert caught.value.fault is RegistryFault.WRONG


def test_a_blob_is_read_to_its_limit_only(stub: StubRegistry, client: HttpRegistry) -> None:
    with pytest.raises(RegistryError, match="more than 4999 bytes"):
        client.blob("a/b", stub.keep("a/b", CONTENT), 4999)


def test_no_more_is_saved_than_the_descriptor_says(
    stub: StubRegistry, client: HttpRegistry, tmp_path: Path
) -> None:
    with pytest.raises(RegistryError, match="more than it said"):
        client.save_blob("a/b", stub.keep("a/b", CONTENT), tmp_path / "saved", 4999)
    assert {one.name for one in tmp_path.iterdir()} == {"config.json"}


IMAGE = {
    "schemaVersion": 2,
    "mediaType": IMAGE_MANIFEST,
    "config": {"mediaType": "application/x", "digest": OTHER, "size": 2},
    "layers": [],
}
LIST = {"schemaVersion": 2, "mediaType": IMAGE_INDEX, "manifests": []}
CHILD = {"mediaType": IMAGE_MANIFEST, "digest": OTHER, "size": 2}


@pytest.mark.parametrize(
    ("value", "media_type", "reason"),
    [
        (IMAGE, IMAGE_INDEX, "was sent as"),
        (LIST, IMAGE_MANIFEST, "was sent as"),
        ({**IMAGE, "mediaType": DOCKER_MANIFEST}, IMAGE_MANIFEST, "was sent as"),
        ({**IMAGE, "manifests": []}, IMAGE_MANIFEST, "at once"),
        ({**LIST, "layers": []}, IMAGE_INDEX, "at once"),
        ({**LIST, "config": IMAGE["config"]}, IMAGE_INDEX, "at once"),
        (IMAGE, "text/html", "was sent as"),
        ({"schemaVersion": 2}, "text/html", "no manifest that is known"),
        ({**IMAGE, "schemaVersion": 1}, IMAGE_MANIFEST, "schemaVersion"),
        ({"schemaVersion": 2, "manifests": 1}, IMAGE_INDEX, "manifests"),
        ({**LIST, "manifests": [{**CHILD, "digest": "sha256:../../x"}]}, IMAGE_INDEX, "digest"),
        (
            {**LIST, "manifests": [{**CHILD, "digest": "sha512:" + "a" * 128}]},
            IMAGE_INDEX,
            "digest",
        ),
        ({**LIST, "manifests": [{**CHILD, "size": -1}]}, IMAGE_INDEX, "size"),
        ({**LIST, "manifests": [{**CHILD, "size": True}]}, IMAGE_INDEX, "size"),
        ({**LIST, "manifests": [{**CHILD, "mediaType": "x\r\ny/z"}]}, IMAGE_INDEX, "mediaType"),
        ({**LIST, "manifests": [{**CHILD, "platform": []}]}, IMAGE_INDEX, "platform"),
        ({**LIST, "annotations": {"a": 1}}, IMAGE_INDEX, "annotations"),
        ([], IMAGE_INDEX, "no JSON object"),
    ],
)
def test_a_manifest_is_one_thing_only(value: object, media_type: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_body(json.dumps(value).encode(), media_type)


TWICE = index_body([])[:-1] + b',"manifests":[]}'


@pytest.mark.parametrize(
    ("body", "reason"),
    [(TWICE, "a key twice"), (b"[" * 100_000, "too deep"), (b"\xff", "utf-8")],
    ids=["twice", "deep", "no text"],
)
def test_a_manifest_is_read_by_all_in_one_way(body: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_body(body, IMAGE_INDEX)


def test_a_registry_that_sends_what_is_two_things_is_not_believed(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.keep_manifest("a/b", "v1", json.dumps({**LIST, "layers": []}).encode(), IMAGE_INDEX)
    with pytest.raises(RegistryError, match="at once") as caught:
        client.manifest("a/b", "v1")
    assert caught.value.fault is RegistryFault.WRONG


def test_docker_schema_2_is_taken(stub: StubRegistry, client: HttpRegistry) -> None:
    body = json.dumps({**IMAGE, "mediaType": DOCKER_MANIFEST}).encode()
    stub.keep_manifest("a/b", "v1", body, DOCKER_MANIFEST)
    found = client.manifest("a/b", "v1")
    assert found is not None
    assert found.descriptor.media_type == DOCKER_MANIFEST


LIES: dict[str, Callable[[HttpRegistry], object]] = {
    "get manifest": lambda client: client.manifest("a/b", "v1"),
    "head manifest": lambda client: client.head("a/b", digest_of(index_body([]))),
    "put manifest": lambda client: client.put_manifest("a/b", "v2", index_body([]), IMAGE_INDEX),
    "close": lambda client: client.put_blob("a/b", bytes_blob(b"new")),
}


@pytest.mark.parametrize("step", LIES)
def test_a_lie_about_a_digest_is_noticed(
    stub: StubRegistry, client: HttpRegistry, step: str
) -> None:
    stub.keep_manifest("a/b", "v1", index_body([]), IMAGE_INDEX)
    stub.fail(step, Fault(lie=OTHER))
    with pytest.raises(RegistryError) as caught:
        LIES[step](client)
    assert caught.value.fault is RegistryFault.WRONG
    assert "do not trust" in caught.value.hint


def read_all(client: HttpRegistry, digest: str) -> bytes:
    with client.open_blob("a/b", digest) as file:
        return file.read()


CHANGES: dict[str, Callable[[HttpRegistry, Path], object]] = {
    "blob": lambda client, _: client.blob("a/b", digest_of(CONTENT), 10_000),
    "stream": lambda client, _: read_all(client, digest_of(CONTENT)),
    "file": lambda client, folder: client.save_blob(
        "a/b", digest_of(CONTENT), folder / "saved", len(CONTENT)
    ),
    "manifest": lambda client, _: client.manifest("a/b", digest_of(index_body([]) + b" ")),
}


@pytest.mark.parametrize("how", CHANGES)
def test_bytes_that_were_changed_are_noticed(
    stub: StubRegistry, client: HttpRegistry, tmp_path: Path, how: str
) -> None:
    stub.keep("a/b", CONTENT)
    stub.keep_manifest("a/b", "", index_body([]) + b" ", IMAGE_INDEX)
    stub.says_digests = False
    stub.auth = ""
    stub.fail("get blob", Fault(corrupt=True))
    stub.fail("get manifest", Fault(instead=index_body([])))
    with pytest.raises(RegistryError, match="it sent sha256:"):
        CHANGES[how](client, tmp_path)
    assert {one.name for one in tmp_path.iterdir()} == {"config.json"}


def test_a_registry_that_does_not_say_what_it_stored_has_to_show_it(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.says_digests = False
    client.put_manifest("a/b", "v1", index_body([]), IMAGE_INDEX)
    assert stub.steps()[-1] == "get manifest"
    other = Descriptor(media_type=IMAGE_INDEX, digest=digest_of(index_body([])), size_bytes=1)
    stub.fail("get manifest", Fault(instead=index_body([other])))
    with pytest.raises(RegistryError, match="it says that it stored"):
        client.put_manifest("a/b", "v2", index_body([]), IMAGE_INDEX)


def test_a_blob_of_another_size_is_not_believed_to_be_there(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    blob = bytes_blob(CONTENT)
    stub.blobs["a/b", blob.digest] = b"short"
    with pytest.raises(RegistryError, match="5 of 5000 bytes"):
        client.put_blob("a/b", blob)


@pytest.mark.parametrize(
    "body", [b'{"tags": ["../../x"]}', b'{"tags": [1]}', b'{"tags": {}}', b"[]", b"x"]
)
def test_a_list_of_tags_has_tags_in_it(
    stub: StubRegistry, client: HttpRegistry, body: bytes
) -> None:
    stub.keep_manifest("a/b", "v1", index_body([]), IMAGE_INDEX)
    stub.fail("tags", Fault(instead=body))
    with pytest.raises(RegistryError):
        client.tags("a/b")


def test_pages_end(stub: StubRegistry, client: HttpRegistry) -> None:
    stub.keep_manifest("a/b", "v1", index_body([]), IMAGE_INDEX)
    stub.fail("tags", Fault(headers={"Link": '</v2/a/b/tags/list>; rel="next"'}))
    with pytest.raises(RegistryError, match="more than 200 pages"):
        client.tags("a/b")


@pytest.mark.parametrize(
    "fault",
    [Fault(headers={"Content-Type": "text/html"}), Fault(instead=b"[]"), Fault(instead=b"{}")],
)
def test_what_is_attached_is_listed_in_an_index(
    stub: StubRegistry, client: HttpRegistry, fault: Fault
) -> None:
    stub.fail("referrers", fault)
    with pytest.raises(RegistryError):
        client.referrers("a/b", OTHER)


def test_a_fallback_tag_that_is_an_image_is_no_list(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.referrers = False
    stub.keep_manifest("a/b", OTHER.replace(":", "-"), json.dumps(IMAGE).encode(), IMAGE_MANIFEST)
    with pytest.raises(RegistryError, match="it is no index"):
        client.referrers("a/b", OTHER)


def test_cookies_are_not_kept(stub: StubRegistry, client: HttpRegistry) -> None:
    stub.fail("tags", Fault(headers={"Set-Cookie": "a=b"}))
    client.tags("a/b")
    client.tags("a/b")
    assert not any("Cookie" in request.headers for request in stub.requests)


def test_a_netrc_is_not_asked(
    stub: StubRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login x password y\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    stub.auth = ""
    client_of(stub, tmp_path).tags("a/b")
    assert stub.shown() == set()


def test_an_upload_says_no_more_than_was_sent(stub: StubRegistry, tmp_path: Path) -> None:

    client = client_of(
        stub, tmp_path, sizes={"whole_bytes": 10, "piece_bytes": 1000}, clock=Clock()
    )
    stub.fail("piece", Fault(headers={"Range": "0-999999"}))
    with pytest.raises(RegistryError, match="it says that it has 1000000 bytes"):
        client.put_blob("a/b", bytes_blob(CONTENT))
    assert INDEX == IMAGE_INDEX


@pytest.mark.parametrize(
    "content",
    [b"[" * 100_000, b'{"before": {"a": "b"}, "before": 1}', b"\xff", b"[]", b'{"layers": [{}]}'],
    ids=["deep", "twice", "no text", "a list", "nothing in it"],
)
def test_what_is_attached_and_cannot_be_read_says_nothing(content: bytes) -> None:
    registry = FakeRegistry()
    image = Descriptor(media_type=IMAGE_MANIFEST, digest=OTHER, size_bytes=1)
    for kind in (MOVES_TYPE, VERIFICATION_TYPE):
        paper = Artifact(artifact_type=kind, payload=content)
        registry.attach_all("a/b", image, [paper])
    assert aliases_before(registry, "a/b", OTHER) == {}
    (_, verified) = registry.referrers("a/b", OTHER)
    assert attached_payload(registry, "a/b", verified.digest) == content
    assert read_attached(registry, "a/b", verified.digest) == ()
