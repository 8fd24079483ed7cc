"""`why` of one image, and of two."""

from __future__ import annotations

import pytest

from warpfront.__main__ import program
from warpfront.commands import why_published
from warpfront.release.tag_contents import TagDifference


@pytest.mark.parametrize(
    "words",
    [
        ["r.test/a:2", "r.test/a:1"],
        ["r.test/a:2", "--since", "r.test/a:1"],
        ["--since", "r.test/a:1", "r.test/a:2"],
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
    program.run(["warpfront", "why", *words], exit=False)
    said = capsys.readouterr().out
    assert said.index("r.test/a:1") < said.index("r.test/a:2")


def test_one_image_is_explained_and_the_next_task_is_a_task() -> None:
    from warpfront.__main__ import second_by_place

    for words in (["why", "r.test/a:2"], ["why", "--trust", "x", "a"], ["plan", "why", "a", "b"]):
        assert second_by_place(["warpfront", *words]) == ["warpfront", *words]
