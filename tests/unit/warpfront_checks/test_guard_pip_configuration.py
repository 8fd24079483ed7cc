"""A base's pip.conf keeps what it says."""

from __future__ import annotations

import pytest

from warpfront_checks.guard.channels import (
    listed_constraints,
    unguarded_sections,
    with_constraint,
)
from warpfront_checks.guard.policy import GuardError

OURS = "/opt/warpfront/guard/constraints.txt"


def test_an_empty_file_gets_the_constraint() -> None:
    assert with_constraint("", OURS) == f"[global]\nconstraint =\n    {OURS}\n"


def test_comments_and_other_settings_stay_as_they_are() -> None:
    text = (
        "# of the base\n[global]\nindex-url = https://a.test/simple  ; not a comment to pip\n"
        "; another\ntrusted-host =\n    a.test\n    b.test\n\n[install]\nno-compile = true\n"
    )
    result = with_constraint(text, OURS)
    assert [line for line in text.splitlines() if line not in result.splitlines()] == []
    assert listed_constraints(result) == {"global": [OURS]}


def test_a_list_of_constraints_that_a_base_has_is_added_to() -> None:
    text = "[global]\nconstraint = /etc/pip/constraint.txt\n  /etc/more.txt\ntimeout = 5\n"
    (files,) = listed_constraints(with_constraint(text, OURS)).values()
    assert sorted(files) == sorted(["/etc/pip/constraint.txt", "/etc/more.txt", OURS])
    assert "timeout = 5" in with_constraint(text, OURS)


def test_a_comment_in_the_middle_of_the_list_does_no_harm() -> None:
    text = "[global]\ntimeout = 5\nconstraint =\n    /a.txt\n# why b\n    /b.txt\nretries = 1\n"
    result = with_constraint(text, OURS)
    assert sorted(listed_constraints(result)["global"]) == sorted(["/a.txt", "/b.txt", OURS])
    assert "# why b" in result


def test_a_list_of_one_command_which_replaces_the_global_one_gets_it_too() -> None:
    text = "[install]\nconstraint = /theirs.txt\n"
    assert unguarded_sections(text, OURS) == ["global", "install"]
    result = with_constraint(text, OURS)
    assert listed_constraints(result) == {"global": [OURS], "install": ["/theirs.txt", OURS]}


@pytest.mark.parametrize("header", ["[global] # mine", "[global]   "])
def test_a_header_with_something_behind_it_is_the_same_section(header: str) -> None:
    result = with_constraint(f"{header}\ntimeout = 5\n", OURS)
    assert result.count("[global]") == 1
    assert listed_constraints(result) == {"global": [OURS]}


@pytest.mark.parametrize("name", ["Constraint = /a.txt", "constraint: /a.txt", "constraint=/a.txt"])
def test_the_setting_is_found_however_it_is_written(name: str) -> None:
    assert listed_constraints(with_constraint(f"[global]\n{name}\n", OURS)) == {
        "global": ["/a.txt", OURS]
    }


def test_sealing_twice_changes_nothing_more() -> None:
    once = with_constraint("[global]\ntimeout = 5\n[install]\nconstraint = /a.txt\n", OURS)
    assert with_constraint(once, OURS) == once


@pytest.mark.parametrize(
    "text", ["no section\n", "[global]\na = 1\n[global]\nb = 2\n", "[global]\nx\n"]
)
def test_what_pip_cannot_read_is_refused(text: str) -> None:
    with pytest.raises(GuardError, match="pip cannot read it"):
        with_constraint(text, OURS)


def test_an_indented_section_is_not_guessed_at() -> None:
    """configparser takes an indented header for one where nothing goes before it."""
    with pytest.raises(GuardError):
        with_constraint("  [global]\ntimeout = 5\n", OURS)
