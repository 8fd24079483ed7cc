"""The guard's own reader of requirements, held against `packaging`, which no image has to have."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.markers import Marker, default_environment
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from warpfront_checks.guard.requires_dist import UnreadableError, read_requirement, sort_key

VERSIONS = (
    "1.0",
    "1.0.0",
    "1.0.dev3",
    "1.0a1",
    "1.0a1.dev2",
    "1.0b2",
    "1.0rc1",
    "1.0.post1",
    "1.0.post1.dev4",
    "1.1",
    "1.10",
    "1!0.5",
    "2.13.0+cpu",
    "2.13.0",
    "0",
)
OPERATORS = ("==", "!=", "<=", ">=", "<", ">")


def public(version: str) -> Version:
    return Version(Version(version).public)


def test_versions_are_ordered_as_packaging_orders_them() -> None:
    assert [
        (left, right)
        for left, right in itertools.product(VERSIONS, VERSIONS)
        if (sort_key(left) < sort_key(right)) is not (public(left) < public(right))
    ] == []


@given(
    st.sampled_from(VERSIONS),
    st.lists(
        st.tuples(
            st.sampled_from(OPERATORS), st.sampled_from([v for v in VERSIONS if "+" not in v])
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_specifiers_accept_what_packaging_accepts(
    version: str, specifiers: list[tuple[str, str]]
) -> None:
    text = ",".join(operator + wanted for operator, wanted in specifiers)
    expected = SpecifierSet(text).contains(version, prereleases=True)
    assert read_requirement(f"demo ({text})").accepts(version) is expected


@pytest.mark.parametrize("text", ["==1.*", "!=1.0.*", "~=1.0", "~=1.0.0", "==2.13.0+cpu", "===1.0"])
def test_prefixes_and_labels_match_as_in_packaging(text: str) -> None:
    for version in VERSIONS:
        expected = SpecifierSet(text).contains(version, prereleases=True)
        assert read_requirement(f"demo{text}").accepts(version) is expected, version


@pytest.mark.parametrize(
    "marker",
    [
        'python_version >= "3.9"',
        'python_version < "3.10"',
        'python_full_version == "3.1.0"',
        'platform_system == "Linux" and platform_machine == "x86_64"',
        'sys_platform == "win32" or os_name == "posix"',
        '(sys_platform == "win32" or os_name == "posix") and python_version > "3"',
        "platform_machine not in 'arm64 aarch64'",
        'implementation_name == "cpython" and "x86" in platform_machine',
        'platform_python_implementation != "CPython"',
    ],
)
def test_markers_hold_where_packaging_says_so(marker: str) -> None:
    environment = {k: str(v) for k, v in default_environment().items()}
    assert read_requirement(f"demo; {marker}").applies() is Marker(marker).evaluate(environment)


def test_an_extra_applies_only_where_it_is_asked_for() -> None:
    requirement = read_requirement('nvidia-cudnn; extra == "Cu_DNN"')
    assert not requirement.applies()
    assert requirement.applies(["cu-dnn"])


@pytest.mark.parametrize("line", ["demo @ https://x.test/d.whl", "demo ==", "", "demo >>1"])
def test_what_is_outside_the_grammar_is_refused_not_guessed(line: str) -> None:
    with pytest.raises(UnreadableError):
        read_requirement(line)


@pytest.mark.timeout(20)
def test_a_strangers_line_is_neither_a_crash_nor_a_standstill() -> None:
    deep = "(" * 5000 + "python_version > '3'" + ")" * 5000
    with pytest.raises(UnreadableError):
        read_requirement(f"demo; {deep}").applies()
    with pytest.raises(UnreadableError):
        read_requirement(f"demo{' ' * 100_000}@ https://x.test/d.whl")
    assert read_requirement(f"demo{' ' * 100_000}>=1").accepts("2")
    for long in ("9" * 5000, "1." * 3000 + "1"):
        for demand in (f"=={long}", f"=={long}.*", ">=1", "==1.*"):
            with pytest.raises(UnreadableError):
                read_requirement(f"demo{demand}").accepts(long)


def test_an_unreadable_marker_is_refused() -> None:
    with pytest.raises(UnreadableError):
        read_requirement('demo; moon_phase == "full"').applies()
