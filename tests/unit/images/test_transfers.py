"""What an engine says of a push: errors that end a stream as if all were well, and a silence that
is full of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from warpfront.errors import RegistryError, RegistryFault
from warpfront.images.engine.docker import Transfer

REFERENCE = "127.0.0.1:5000/demo/torch:candidate"
PUSHED = {"status": "Pushed", "progressDetail": {}, "id": "b"}


def followed(events: Iterable[Mapping[str, Any]], seconds_each: float = 0.0) -> Transfer:
    told = iter(range(10**9))
    made = Transfer(
        verb="push",
        reference=REFERENCE,
        on_progress=lambda _done, _total: None,
        stall_seconds=60,
        clock=lambda: next(told) * seconds_each,
    )
    made.follow(events)
    return made


def pushing(layer: str, current: int) -> Mapping[str, Any]:
    detail = {"current": current, "total": 100}
    return {"status": "Pushing", "progressDetail": detail, "id": layer}


def test_bytes_that_went_are_counted_and_those_that_were_there_are_not() -> None:
    events = [pushing("a", 10), pushing("b", 50), pushing("a", 100), PUSHED]
    events += [{"status": "Layer already exists", "progressDetail": {}, "id": "c"}]
    events += [{"status": "Mounted from demo/other", "id": "d"}]
    assert followed(events).moved_bytes == 150


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("no basic auth credentials", RegistryFault.REFUSED),
        ("unauthorized: authentication required", RegistryFault.REFUSED),
        ("denied: requested access to the resource is denied", RegistryFault.REFUSED),
        ("unexpected status from PUT request: 403 Forbidden", RegistryFault.REFUSED),
        ("dial tcp 127.0.0.1:5000: connect: connection refused", RegistryFault.UNREACHABLE),
        ("Put http://127.0.0.1: EOF", RegistryFault.UNREACHABLE),
        ("received unexpected HTTP status: 507 Insufficient Storage", RegistryFault.FULL),
        ("blob upload invalid", RegistryFault.FULL),
        ("failed to resolve reference: not found", RegistryFault.REFUSED),
        ("received unexpected HTTP status: 500", RegistryFault.WRONG),
        ("failed commit on ref: got digest sha256:00", RegistryFault.WRONG),
    ],
)
def test_an_error_in_the_stream_is_an_error_that_names_registry_step_and_what_next(
    said: str, fault: RegistryFault
) -> None:
    events = [pushing("a", 10), {"errorDetail": {"message": said}, "error": said}]
    with pytest.raises(RegistryError) as caught:
        followed(events)
    assert caught.value.fault is fault
    assert caught.value.message == f"127.0.0.1:5000: push {REFERENCE}: {said}"
    assert caught.value.hint


def test_an_error_without_details_is_one_too() -> None:
    with pytest.raises(RegistryError):
        followed([{"error": "gone"}])


def endless(event: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield pushing("a", 10)
    while True:
        yield event


@pytest.mark.parametrize(
    "event",
    [
        {"status": "Waiting", "id": "a"},
        {"status": "Retrying in 5 seconds", "progressDetail": {}, "id": "a"},
        {"status": "Preparing", "id": "b"},
        pushing("a", 10),
    ],
)
def test_a_registry_that_hangs_is_left_however_much_the_engine_says(
    event: Mapping[str, Any],
) -> None:
    with pytest.raises(RegistryError) as caught:
        followed(endless(event), seconds_each=0.05)
    assert caught.value.fault is RegistryFault.SLOW
    assert "no byte moved for 60 s" in caught.value.message


def test_a_slow_push_that_moves_is_waited_for() -> None:
    events = [pushing("a", done) for done in range(1, 101)]
    assert followed(events, seconds_each=50).moved_bytes == 100
