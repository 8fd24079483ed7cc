"""`why` of one image, and of two."""

from __future__ import annotations

import pytest

from warpfront.cli.program import run
from warpfront.commands import why_published
from warpfront.release.tag_contents import TagDifference


@pytest.mark.parametrize(
    "words",
    [
        ["r.test/a:2", "r.test/a:1"],
        ["r.test/a:2", "r.test/a:1", "--json"],
    ],
)
def test_what_changed_from_the_second_image_to_the_first(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compare(reference: str, other: str, **_: str) -> TagDifference:
        found = {"wheels": (), "packages": (), "folders": (), "size_bytes": (1, 2)}
        return TagDifference(before=other, now=reference, **found)  # type: ignore[arg-type]

    monkeypatch.setattr(why_published, "compare_tags", compare)
    assert run(["why", *words]) == 0
    said = capsys.readouterr().out
    assert said.index("r.test/a:1") < said.index("r.test/a:2")
