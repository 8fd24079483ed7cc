"""Benches of many nights: what changed for good is named, and what only varies is not."""

from __future__ import annotations

import dataclasses
import json
from random import Random

import pytest
from series import noisy

from warpfront.bench.nights import (
    FALSE_ALARMS,
    FEWEST,
    Night,
    night_of,
    read_nights,
    shifts_of,
    shifts_text,
    too_few_nights,
    trends_of,
)
from warpfront.bench.records import Bench, Measurement, Training
from warpfront.report.history import HEIGHT, WIDTH, value_line

MEASURED = Measurement(
    id="mm/512/float32",
    suite="matmul",
    op="mm",
    shape="512",
    dtype="float32",
    direction="forward",
    outcome="passed",
    samples_seconds=((0.2, 0.3), (0.1,)),
)
BENCH = Bench(
    cell_id="cell",
    image_digest="sha256:1",
    content_hash="abc",
    verified="passed",
    target="sm_90",
    at="2026-11-01T00:00:00Z",
    tool={},
    environment={"device_name": "NVIDIA H100"},
    settings={},
    results=(MEASURED, dataclasses.replace(MEASURED, id="add", samples_seconds=())),
    training=(
        Training(id="decoder", dtype="float32", tokens_per_step=1, devices=1, step_seconds=(2.0,)),
    ),
)


def nights(cases: dict[str, list[float]], **fields: str) -> list[Night]:
    """A night a value; of series of one length."""
    usual = dataclasses.replace(night_of(BENCH), **fields)  # type: ignore[arg-type]
    return [
        dataclasses.replace(
            usual,
            at=f"night {number:03}",
            image_digest=f"sha256:{number}",
            seconds=dict(zip(cases, values, strict=True)),
        )
        for number, values in enumerate(zip(*cases.values(), strict=True))
    ]


def test_a_night_is_the_medians_of_what_was_timed() -> None:
    night = night_of(BENCH, runner="rack-3")
    assert night.seconds == {"mm/512/float32": 0.2, "decoder": 2.0}
    assert night.place == ("cell", "sm_90", "NVIDIA H100", "rack-3")


def test_a_file_of_nights_is_read_as_far_as_it_is_one() -> None:
    first, second = nights({"mm": [1.0, 2.0]})
    foreign = json.dumps({"schema": 9})
    endless = value_line(first).replace("1.0", "Infinity")
    nothing = value_line(first).replace("1.0", "0.0")
    lines = [value_line(second), value_line(first), value_line(first), foreign, "[]", "{", "[" * 9]
    found, unread = read_nights("\n".join([*lines, endless, nothing, value_line(first)[:30]]))
    assert found == (first, second)
    assert unread == 7


def test_an_operation_that_became_slower_for_good_is_named_with_its_night_and_image() -> None:
    cases = {f"op{number}": noisy(24, number) for number in range(20)}
    cases["slow"] = [*noisy(17, 91), *noisy(7, 92, 1.05)]
    (shift,) = shifts_of(nights(cases))
    assert (shift.case, shift.at, shift.image_digest) == ("slow", "night 017", "sha256:17")
    assert shift.ratio == pytest.approx(1.05, abs=0.015)
    text = shifts_text(nights(cases), [shift])
    assert "slow: 1.0" in text
    assert "sha256:17" in text


def test_a_page_is_given_what_changed_and_each_place_together() -> None:
    cases = {"steady": noisy(24, 3), "slow": [*noisy(17, 91), *noisy(7, 92, 1.2)]}
    found = nights(cases)
    changed, together = trends_of(found, shifts_of(found))
    assert (changed.name, changed.change, len(changed.at)) == ("slow", 17, 24)
    assert "since night 017, image 17" in changed.said
    assert [begin for begin, _, _ in changed.levels] == ["0.0", "177.4"]
    before, after = (float(height) for _, _, height in changed.levels)
    assert after < before, "the slower, the higher"
    assert (together.name, together.change) == ("all operations", None)
    assert together.times[-1] == pytest.approx(1.2**0.5, abs=0.02)
    assert "2 operations of 24 nights; the last night 1.08" in together.said
    assert trends_of(found[:1], ()) == ()


def test_a_line_that_trembles_does_not_fill_its_picture() -> None:
    (trend,) = trends_of(nights({"mm": [1.0, 1.001, 0.999]}), ())
    heights = [float(pair.partition(",")[2]) for pair in trend.line.split()]
    assert max(heights) - min(heights) < HEIGHT / 20
    (trend,) = trends_of(nights({"mm": [1.0, 2.0]}), ())
    assert trend.line == f"0.0,{HEIGHT * 0.95:.1f} {WIDTH}.0,{HEIGHT * 0.05:.1f}"


def test_a_change_within_the_noise_of_operations_or_of_one_night_is_none() -> None:
    little = [*noisy(20, 1, noise=0.001), *noisy(20, 2, 1.02, noise=0.001)]
    once = [*noisy(12, 3), 3.0, *noisy(12, 4)]
    assert not shifts_of(nights({"little": little}))
    assert not shifts_of(nights({"once": once}))


def test_few_nights_say_nothing_and_the_text_says_how_many_are_needed() -> None:
    few = nights({"mm": [1.0] * 3 + [2.0] * 4})
    assert not shifts_of(few)
    assert f"{2 * FEWEST} are needed" in shifts_text(few, ())
    assert "not determined: too few nights" in shifts_text(few, ())
    (reason,) = too_few_nights(few)
    assert f"7 nights; a change needs {2 * FEWEST}" in reason
    assert too_few_nights(()) == ("the history has no night",)


def test_other_devices_and_runners_are_other_series() -> None:
    """A slower machine that takes over is no slower operation."""
    one = nights({"mm": noisy(10, 1)}, runner="one")
    other = nights({"mm": noisy(10, 2, 1.5)}, runner="other")
    assert not shifts_of([*one, *other])
    same = [dataclasses.replace(night, at=f"later {night.at}") for night in other]
    assert shifts_of([*one, *(dataclasses.replace(night, runner="one") for night in same)])


@pytest.mark.parametrize(
    ("histories", "cases"), [(20, 6), pytest.param(200, 30, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("tail", [0.02, 1e9], ids=["heavy tails", "normal"])
def test_histories_without_a_change_seldom_name_one(
    tail: float, histories: int, cases: int
) -> None:
    random = Random(7)

    def times() -> list[float]:
        scales = (0.01 / min(1.0, random.random() + tail) for _ in range(20))
        return [abs(random.gauss(1, scale)) for scale in scales]

    named = sum(
        bool(shifts_of(nights({str(case): times() for case in range(cases)})))
        for _ in range(histories)
    )
    print(f"{named} of {histories} named one")
    assert named <= histories * FALSE_ALARMS + 2
