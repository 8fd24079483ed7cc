"""A registry that sends what no server's library would: every answer of ours to it is an error that
says so, in time, and never a crash.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from raw_answers import an_answer, sending
from stub_registry import IMPATIENT, QUICK, Clock, StubRegistry, client_of

from warpfront.errors import RegistryError
from warpfront.release.registry import client as registry_client
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import (
    IMAGE_INDEX,
    IMAGE_MANIFEST,
    Artifact,
    Descriptor,
    bytes_blob,
)

DIGEST = "sha256:" + "a" * 64
SUBJECT = Descriptor(media_type=IMAGE_MANIFEST, digest=DIGEST, size_bytes=1)
PAPER = Artifact(artifact_type="a/b", payload=b"1")
ENTRY = {"mediaType": IMAGE_MANIFEST, "digest": DIGEST, "size": 2}


VERBS: dict[str, Callable[[HttpRegistry, Path], object]] = {
    "head": lambda line, _: line.head("a/b", "v1"),
    "manifest": lambda line, _: line.manifest("a/b", "v1"),
    "tags": lambda line, _: line.tags("a/b"),
    "put blob": lambda line, _: line.put_blob("a/b", bytes_blob(b"x"), ("c/d",)),
    "save": lambda line, folder: line.save_blob("a/b", DIGEST, folder / "saved", 100),
    "attach": lambda line, _: line.attach_all("a/b", SUBJECT, [PAPER]),
}
PAGE = json.dumps({"schemaVersion": 2, "manifests": [ENTRY]})
HUGE = PAGE.replace('"size": 2', f'"size": {"9" * 5000}')
RAW: dict[str, bytes] = {
    "a length in other digits": an_answer(Content_Length="\xb2", Docker_Content_Digest=DIGEST),
    "a length below nothing": an_answer(Content_Length="-5", Docker_Content_Digest=DIGEST),
    "a length beyond all": an_answer(Content_Length="9" * 5000, Docker_Content_Digest=DIGEST),
    "more than its length": an_answer(body=b"x" * 50, Content_Length="3"),
    "two lengths": an_answer(Transfer_Encoding="chunked", Content_Length="3") + b"zz\r\n",
    "a wait in other digits": an_answer("503 x", Retry_After="\xb2"),
    "a wait to no date": an_answer("503 x", Retry_After="Sun, 99 Nov 99999999999 04:00:09 GMT"),
    "a wait beyond all years": an_answer(
        "429 x", Retry_After="Sun, 22 Nov 99999999999 04:00:09 GMT", Date="x"
    ),
    "a status that is none": an_answer("999 x"),
    "nothing, and that is fine": b"HTTP/1.1 204 No\r\n\r\n",
    "an empty yes": an_answer(),
    "no HTTP": b"junk\n" * 100,
    "too many headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    "a header without end": an_answer(X="a" * 200_000),
    "an upload to half an address": an_answer("202 x", Location="http://[::1"),
    "an upload to no port": an_answer("202 x", Location="http://127.0.0.1:99999999/x"),
    "a redirect to no port": an_answer("307 x", Location="https://h:abc/x"),
    "a redirect to no name": an_answer("307 x", Location=f"https://{'a' * 300}.example/x"),
    "a redirect in other letters": an_answer("307 x", Location="https://xn--\xff\xff..example/x"),
    "a redirect to a file": an_answer("307 x", Location="file:///etc/passwd"),
    "a login at half an address": an_answer("401 x", WWW_Authenticate='Bearer realm="http://[::1"'),
    "a login at no port": an_answer("401 x", WWW_Authenticate='Bearer realm="https://h:abc/"'),
    "a login without end": an_answer("401 x", WWW_Authenticate="Bearer " + "a," * 20_000),
    "a next page at half an address": an_answer(
        body=b'{"tags":["t"]}', Link='<http://[::1>; rel="next"'
    ),
    "what is not packed as it says": an_answer(body=b"\x1f\x8bxx", Content_Encoding="gzip"),
    "a number of 5000 digits": an_answer(body=HUGE.encode(), Content_Type=IMAGE_INDEX),
    "half a letter": an_answer(body=b'{"tags":["\\ud800"]}'),
    "half a letter in its words": an_answer("403 x", b'{"errors":[{"message":"\\ud800"}]}'),
    "words without end": an_answer("403 x", b"[" * 60_000),
    "words that are none": an_answer("500 x", b'{"errors":[1,null,{"code":[],"message":{}}]}'),
}

# A HEAD may be without a length.
FINE = {
    ("put blob", "a length below nothing"),
    ("put blob", "a length in other digits"),
}
GIVEN_UP_SOON = dataclasses.replace(IMPATIENT, tries=2)


@pytest.mark.parametrize("verb", VERBS)
def test_whatever_it_sends_is_an_error_that_names_it(verb: str, tmp_path: Path) -> None:
    """All at once, for who is kept waiting waits alone."""

    def said(name: str) -> str:
        (tmp_path / name).mkdir()
        patience = QUICK if (verb, name) in FINE else GIVEN_UP_SOON
        with sending(lambda _: [RAW[name]]) as host:
            stub = StubRegistry(host=host)
            with client_of(stub, tmp_path / name, clock=Clock(), patience=patience) as line:
                return error_of(lambda: VERBS[verb](line, tmp_path / name), host)

    with ThreadPoolExecutor(len(RAW)) as pool:
        answers = dict(zip(RAW, pool.map(said, RAW), strict=True))
    fine = {name for of, name in FINE if of == verb}
    assert {name for name, text in answers.items() if not text} == fine
    assert {text.partition(" ")[0] for text in answers.values() if text} == {"HOST:"}


def error_of(act: Callable[[], object], host: str) -> str:
    """What it says, with a hint; "" = none. It is not kept: its line would stay open with it."""
    said = ""
    try:
        act()
    except RegistryError as error:
        said = str(error).replace(host, "HOST") if error.hint else "no hint"
    return said


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("verb", ["manifest", "save"])
@pytest.mark.parametrize(
    ("begins", "goes_on"),
    [
        (CHUNKED + b"0\r\n", b"X: y\r\n"),  # of what ends a body, no end
        (CHUNKED + b"1;", b"a" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["trailers", "the length of a piece", "go on"],
)
def test_what_has_no_end_is_cut_off(
    tmp_path: Path, verb: str, begins: bytes, goes_on: bytes
) -> None:
    impatient = dataclasses.replace(IMPATIENT, window_seconds=0.05, answer_seconds=0.1, tries=2)

    def answer(_asked: bytes) -> Iterable[bytes]:
        return itertools.chain([begins], itertools.repeat(goes_on))

    with sending(answer) as host:
        line = client_of(StubRegistry(host=host), tmp_path, clock=Clock(), patience=impatient)
        with line, pytest.raises(RegistryError) as caught:
            VERBS[verb](line, tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize("verb", ["tags", "referrers"])
def test_pages_together_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """200 pages of four megabytes each would be more than most machines have."""
    monkeypatch.setattr(registry_client, "_MOST_PAGES_BYTES", 3000)
    asked: list[bytes] = []

    def answer(request: bytes) -> Iterable[bytes]:
        asked.append(request)
        body = json.dumps({"tags": ["x" * 100] * 10}) if verb == "tags" else PAGE.ljust(1000)
        link = f'</v2/a/b/{verb}?page={len(asked)}>; rel="next"'
        return [an_answer(body=body.encode(), Content_Type=IMAGE_INDEX, Link=link)]

    with sending(answer) as host:
        line = client_of(StubRegistry(host=host), tmp_path, clock=Clock())
        with line, pytest.raises(RegistryError, match="more than"):
            line.tags("a/b") if verb == "tags" else line.referrers("a/b", DIGEST)
    assert len(asked) <= 4
