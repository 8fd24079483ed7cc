"""Two images are compared file by file, and no difference passes that nobody wrote down."""

from __future__ import annotations

from pathlib import Path

from image_trees import Allowed, differences, read_allowed, unexplained

FILE: list[object] = ["-rw-r--r--", 0, 0, 315_532_800, "aa"]


def test_content_mode_owner_age_and_presence_are_told_apart() -> None:
    one = {"/same": FILE, "/gone": FILE, "/content": FILE, "/mode": FILE, "/age": FILE, "/u": FILE}
    other = {
        "/same": FILE,
        "/new": FILE,
        "/content": [*FILE[:4], "bb"],
        "/mode": ["-rwxr-xr-x", *FILE[1:]],
        "/age": [*FILE[:3], 1, "aa"],
        "/u": [FILE[0], 1, *FILE[2:]],
    }
    presence = {("/gone", "presence"), ("/new", "presence")}
    changed = {("/content", "content"), ("/mode", "mode"), ("/age", "age"), ("/u", "mode")}
    assert differences(one, other) == presence | changed


def test_what_is_allowed_has_to_fit_in_path_and_kind_and_to_occur() -> None:
    fits = Allowed("/bin/*", "content", "launchers")
    never = Allowed("/lib/*", "content", "none")
    found = {("/bin/pip", "content"), ("/bin/pip", "mode")}
    assert unexplained(found, (fits, never)) == ({("/bin/pip", "mode")}, {never})


def test_the_written_list_gives_a_reason_for_each() -> None:
    allowed = read_allowed(Path(__file__).parents[1] / "composed_differences.toml")
    assert {one.what for one in allowed} == {"content", "presence", "age"}
    assert all(one.why for one in allowed)
