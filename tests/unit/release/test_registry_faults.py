"""A registry that fails: what is tried again, for how long, and what is said in the end. Every
fault is put into one step of a publication on a loopback stub.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from stub_registry import (
    IMPATIENT,
    QUICK,
    Clock,
    Fault,
    StubRegistry,
    client_of,
    digest_of,
    serve_registry,
)

from warpfront.errors import RegistryError, RegistryFault
from warpfront.release.registry.client import HttpRegistry
from warpfront.release.registry.contract import IMAGE_INDEX, bytes_blob, index_body
from warpfront.release.registry.http import Attempts, Patience

EMPTY_INDEX = index_body([])
CONTENT = os.urandom(5000)
SMALL = b"a small blob"


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with serve_registry(auth="bearer") as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(stub: StubRegistry, tmp_path: Path, clock: Clock) -> HttpRegistry:
    sizes = {"whole_bytes": 1000, "piece_bytes": 2000}
    return client_of(stub, tmp_path, sizes=sizes, clock=clock)


def save(client: HttpRegistry, folder: Path) -> None:
    client.save_blob("a/b", digest_of(CONTENT), folder / "saved", len(CONTENT))
    assert (folder / "saved").read_bytes() == CONTENT


Verb = Callable[[HttpRegistry, Path], object]

# A step of the registry, and the verb of ours that it is a part of.
STEPS: dict[str, Verb] = {
    "token": lambda client, _: client.tags("a/b"),
    "head blob": lambda client, _: client.put_blob("a/b", bytes_blob(SMALL)),
    "begin": lambda client, _: client.put_blob("a/b", bytes_blob(SMALL)),
    "close": lambda client, _: client.put_blob("a/b", bytes_blob(SMALL)),
    "piece": lambda client, _: client.put_blob("a/b", bytes_blob(CONTENT)),
    "put manifest": lambda client, _: client.put_manifest("a/b", "v1", EMPTY_INDEX, IMAGE_INDEX),
    "head manifest": lambda client, _: client.head("a/b", "old"),
    "get manifest": lambda client, _: client.manifest("a/b", "old"),
    "referrers": lambda client, _: client.referrers("a/b", digest_of(EMPTY_INDEX)),
    "tags": lambda client, _: client.tags("a/b"),
    "delete": lambda client, _: client.delete("a/b", digest_of(b"nothing")),
    "get blob": save,
}
BY_STEP = pytest.mark.parametrize("step", STEPS)


@pytest.fixture
def act(stub: StubRegistry, client: HttpRegistry, tmp_path: Path) -> Callable[[str], object]:
    return acting(stub, client, tmp_path)


def acting(stub: StubRegistry, client: HttpRegistry, folder: Path) -> Callable[[str], object]:
    """Do what a step is a part of, in a registry that has something and knows us."""
    stub.keep_manifest("a/b", "old", EMPTY_INDEX, IMAGE_INDEX)
    stub.keep("a/b", CONTENT)
    client.tags("a/b")  # has a token now
    client.put_blob("a/b", bytes_blob(CONTENT))
    client.delete("a/b", digest_of(b"nothing"))
    stub.requests.clear()

    def act(step: str) -> object:
        if step == "token":
            stub.tokens.clear()
        if step != "get blob":
            stub.blobs.clear()
        return STEPS[step](client, folder)

    return act


def failure_of(act: Callable[[str], object], step: str) -> RegistryError:
    with pytest.raises(RegistryError) as caught:
        act(step)
    return caught.value


@BY_STEP
def test_what_fails_now_and_then_is_done_all_the_same(
    stub: StubRegistry, clock: Clock, act: Callable[[str], object], step: str
) -> None:
    for status in (500, 503, 429):
        stub.fail(step, Fault(status=status, times=1))
    act(step)
    assert stub.steps().count(step) >= 4
    assert clock.waits == [0.5, 1.0, 2.0]


@BY_STEP
def test_what_fails_always_is_given_up_with_words_for_who_has_to_mend_it(
    stub: StubRegistry, clock: Clock, act: Callable[[str], object], step: str
) -> None:
    stub.fail(step, Fault(status=503))
    error = failure_of(act, step)
    assert error.fault is RegistryFault.WRONG
    assert error.registry == stub.host
    assert str(error).startswith(f"{stub.host}: {error.step}: ")
    assert "HTTP 503" in str(error)
    assert "try again later" in error.hint
    assert stub.steps().count(step) == QUICK.tries
    assert clock.waits == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        (408, RegistryFault.SLOW),
        (429, RegistryFault.SLOW),
        (500, RegistryFault.WRONG),
        (502, RegistryFault.WRONG),
        (504, RegistryFault.WRONG),
    ],
)
def test_every_failure_that_may_pass_is_tried_again(
    stub: StubRegistry, act: Callable[[str], object], status: int, fault: RegistryFault
) -> None:
    stub.fail("put manifest", Fault(status=status))
    assert failure_of(act, "put manifest").fault is fault
    assert stub.steps().count("put manifest") == QUICK.tries


@BY_STEP
def test_the_registry_is_given_the_time_that_it_asks_for(
    stub: StubRegistry, clock: Clock, act: Callable[[str], object], step: str
) -> None:
    stub.fail(step, Fault(status=503, headers={"Retry-After": "7"}, times=1))
    act(step)
    assert clock.waits == [7.0]


@pytest.mark.parametrize(
    ("said", "waits"),
    [("9999", [30.0] * 4), ("-1", [0.5, 1.0, 2.0, 4.0]), ("soon", [0.5, 1.0, 2.0, 4.0])],
)
def test_but_no_more_than_our_own_patience(
    stub: StubRegistry, clock: Clock, act: Callable[[str], object], said: str, waits: list[float]
) -> None:
    stub.fail("tags", Fault(status=429, headers={"Retry-After": said}))
    failure_of(act, "tags")
    assert clock.waits == waits


def test_a_date_to_come_back_at_is_held_against_the_registrys_own_clock(
    stub: StubRegistry, clock: Clock, act: Callable[[str], object]
) -> None:
    dates = {
        "Date": "Sun, 22 Nov 2026 04:00:00 GMT",
        "Retry-After": "Sun, 22 Nov 2026 04:00:09 GMT",
    }
    stub.fail("tags", Fault(status=503, headers=dates, times=1))
    act("tags")
    assert clock.waits[0] in {9.0, 0.5}, "http.server may have said its own Date first"


def test_all_waits_together_have_a_limit() -> None:
    clock = Clock()
    attempts = Attempts(clock.paced(Patience(tries=1000, waits_seconds=50.0)))
    while attempts.again(20.0):
        pass
    assert clock.waits == [20.0, 20.0, 10.0]


def test_a_silence_counts_for_several_tries() -> None:
    clock = Clock()
    attempts = Attempts(clock.paced(Patience(tries=6)))
    assert attempts.again(0.0, 3)
    assert not attempts.again(0.0, 3)


def test_waits_are_anything_up_to_their_bound() -> None:
    waits: list[float] = []
    attempts = Attempts(Patience(sleep=waits.append, chance=iter([0.25, 0.5]).__next__))
    assert attempts.again(0.0)
    assert attempts.again(0.0)
    assert waits == [0.125, 0.5]


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (step, status)
        for step in STEPS
        for status in (401, 403, 400)
        if (step, status) != ("piece", 400)  # which is how some say that they take no pieces
    ],
)
def test_what_is_refused_is_not_tried_again(
    stub: StubRegistry, act: Callable[[str], object], step: str, status: int
) -> None:
    offer = {"WWW-Authenticate": f'Bearer realm="http://{stub.host}/token"'}
    stub.fail(step, Fault(status=status, headers=offer))
    error = failure_of(act, step)
    assert error.fault is RegistryFault.REFUSED
    # A login is shown anew once; an upload begun anew once, for its bytes may have been damaged.
    once_more = (step, status) == ("close", 400) or (status == 401 and step != "token")
    assert stub.steps().count(step) == (2 if once_more else 1)
    if status in {401, 403}:
        assert f"docker login {stub.host}" in error.hint


@BY_STEP
def test_a_full_registry_is_named_as_such_and_not_asked_again(
    stub: StubRegistry, clock: Clock, act: Callable[[str], object], step: str
) -> None:
    stub.fail(step, Fault(status=507))
    error = failure_of(act, step)
    assert error.fault is RegistryFault.FULL
    assert "free space" in error.hint
    assert clock.waits == []


def test_a_full_disk_of_debians_registry_is_found_in_its_500(
    stub: StubRegistry, clock: Clock, act: Callable[[str], object]
) -> None:
    detail = {"DriverName": "filesystem", "Enclosed": {"Op": "write", "Path": "/x", "Err": 28}}
    body = {"errors": [{"code": "UNKNOWN", "message": "unknown error", "detail": detail}]}
    stub.fail("close", Fault(status=500, body=json.dumps(body).encode()))
    assert failure_of(act, "close").fault is RegistryFault.FULL
    assert clock.waits == []


def test_a_registry_that_hangs_is_given_up_in_time(tmp_path: Path) -> None:
    """At each step, all at once."""
    with ExitStack() as stack:
        acts: dict[str, tuple[StubRegistry, Callable[[str], object]]] = {}
        for step in STEPS:
            (tmp_path / step).mkdir()
            stub = stack.enter_context(serve_registry(auth="bearer"))
            sizes = {"whole_bytes": 1000, "piece_bytes": 2000}
            client = client_of(stub, tmp_path / step, sizes=sizes, clock=Clock())
            acts[step] = stub, acting(stub, stack.enter_context(client), tmp_path / step)
            patience = client._exchange.patience
            client._exchange.patience = replace(patience, answer_seconds=IMPATIENT.answer_seconds)
            stub.fail(step, Fault(hangs=True, times=1))
        began = time.monotonic()
        with ThreadPoolExecutor(len(STEPS)) as pool:
            list(pool.map(lambda step: acts[step][1](step), STEPS))
        assert time.monotonic() - began < 40.0
        assert [step for step, (stub, _) in acts.items() if stub.steps().count(step) < 2] == []


def test_a_registry_that_always_hangs_is_too_slow(stub: StubRegistry, tmp_path: Path) -> None:
    stub.fail("tags", Fault(hangs=True))
    client = client_of(stub, tmp_path, patience=IMPATIENT)
    with pytest.raises(RegistryError) as caught:
        client.tags("a/b")
    assert caught.value.fault is RegistryFault.SLOW
    assert stub.steps().count("tags") == 2, "for one that is silent takes its time"


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_registry_that_sends_a_byte_now_and_then_is_too_slow(
    stub: StubRegistry, tmp_path: Path, part: str
) -> None:
    """Every byte would come within any read time-out; all of them would take minutes."""
    stub.keep("a/b", CONTENT)
    stub.auth = ""
    client = client_of(stub, tmp_path)
    patience = Patience(answer_seconds=0.2, window_seconds=0.2, window_bytes=1000, tries=1)
    client._exchange.patience = patience
    stub.fail("get blob", Fault(drips=part))
    began = time.monotonic()
    with pytest.raises(RegistryError) as caught:
        client.save_blob("a/b", digest_of(CONTENT), tmp_path / "saved", len(CONTENT))
    assert caught.value.fault is RegistryFault.SLOW
    assert time.monotonic() - began < 40.0
    assert not (tmp_path / "saved").exists()


def test_a_registry_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with serve_registry() as stub:
        client = client_of(stub, tmp_path)
    with pytest.raises(RegistryError, match="connection refused") as caught:
        client.tags("a/b")
    assert caught.value.fault is RegistryFault.UNREACHABLE


def test_an_upload_that_is_cut_goes_on_where_the_registry_was(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    blob = bytes_blob(CONTENT)
    stub.fail("piece", Fault(cut_at=1500, spare=1, times=1))
    sent = client.put_blob("a/b", blob)
    assert stub.blobs["a/b", blob.digest] == CONTENT
    assert stub.steps().count("begin") == 1
    assert sent == 5000 + 500, "the part of a piece that had not come"


def test_an_upload_that_was_forgotten_begins_anew(stub: StubRegistry, client: HttpRegistry) -> None:
    blob = bytes_blob(CONTENT)
    stub.fail("piece", Fault(cut_at=1500, spare=1, times=1, forgets=True))
    sent = client.put_blob("a/b", blob)
    assert stub.blobs["a/b", blob.digest] == CONTENT
    assert stub.steps().count("begin") == 2
    assert sent == 2000 + 2000 + 5000


@pytest.mark.parametrize("forgets", [False, True])
def test_an_upload_that_is_cut_at_the_same_place_for_ever_ends(
    stub: StubRegistry, client: HttpRegistry, *, forgets: bool
) -> None:
    """Also where the first piece goes well every time: beginning again is no progress."""
    stub.fail("piece", Fault(cut_at=0, every=2, forgets=True) if forgets else Fault(cut_at=0))
    with pytest.raises(RegistryError, match=f"upload of {digest_of(CONTENT)} to a/b"):
        client.put_blob("a/b", bytes_blob(CONTENT))
    assert stub.steps().count("piece") <= 2 * QUICK.tries
    assert stub.blobs == {}


def test_a_blob_that_arrived_while_its_answer_was_lost_is_not_sent_again(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.fail("close", Fault(cut_at=0, times=1))
    sent = client.put_blob("a/b", bytes_blob(CONTENT))
    assert sent == 5000
    assert stub.steps().count("close") == 1


def test_a_small_blob_that_is_cut_is_sent_again(stub: StubRegistry, client: HttpRegistry) -> None:
    stub.fail("close", Fault(cut_at=3, times=1, forgets=True))
    client.put_blob("a/b", bytes_blob(SMALL))
    assert stub.blobs["a/b", digest_of(SMALL)] == SMALL


def test_bytes_that_were_damaged_on_the_way_are_sent_once_more(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.fail("close", Fault(status=400, times=1))
    client.put_blob("a/b", bytes_blob(SMALL))
    assert stub.blobs["a/b", digest_of(SMALL)] == SMALL


def test_pieces_that_are_too_large_become_smaller(tmp_path: Path) -> None:
    with serve_registry(most_bytes=2**20) as stub:
        sizes = {"whole_bytes": 1000, "piece_bytes": 2**22}
        blob = bytes_blob(os.urandom(5 * 2**20))
        client_of(stub, tmp_path, sizes=sizes).put_blob("a/b", blob)
        assert stub.blobs["a/b", blob.digest] == blob.open().read()


def test_where_even_the_smallest_piece_is_too_large_somebody_has_to_raise_a_limit(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.most_bytes = 10
    with pytest.raises(RegistryError, match="HTTP 413") as caught:
        client.put_blob("a/b", bytes_blob(CONTENT))
    assert caught.value.fault is RegistryFault.FULL
    assert "raise the limit" in caught.value.hint


def test_a_download_that_is_cut_goes_on(stub: StubRegistry, act: Callable[[str], object]) -> None:
    stub.fail("get blob", Fault(cut_at=2000, times=1))
    act("get blob")
    ranges = [one.headers.get("Range") for one in stub.requests if one.step == "get blob"]
    assert ranges[1] == "bytes=2000-"


def test_a_manifest_whose_answer_was_lost_is_put_again(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    stub.fail("put manifest", Fault(cut_at=0, times=1))
    put = client.put_manifest("a/b", "v1", EMPTY_INDEX, IMAGE_INDEX)
    assert stub.tags == {("a/b", "v1"): put.digest}
    assert stub.steps().count("put manifest") == 2


def test_a_token_that_ends_in_the_middle_of_an_upload_is_asked_for_anew(
    stub: StubRegistry, client: HttpRegistry
) -> None:
    blob = bytes_blob(CONTENT)
    stub.fail(
        "piece",
        Fault(
            status=401,
            spare=1,
            times=1,
            headers={"WWW-Authenticate": f'Bearer realm="http://{stub.host}/token",service="stub"'},
        ),
    )
    assert client.put_blob("a/b", blob) == 5000 + 2000
    assert stub.blobs["a/b", blob.digest] == CONTENT
