"""The policy to the letter: its document, each refusal in words, and what a name, a version, an
index and a shim's requirement may be made of.
"""

from __future__ import annotations

import dataclasses
import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront_checks.guard.policy import (
    GuardError,
    Policy,
    Shim,
    normalized,
    policy_from,
    read_policy,
)

POLICY = Policy(
    cell="rocm",
    title="PyTorch for ROCm",
    index="https://download.pytorch.org/whl/rocm6.4",
    protected={"torch": "2.9.1+rocm6.4", "pytorch-triton-rocm": "3.5.1"},
    companions={"torchaudio": "2.9.1+rocm6.4", "torch": "0"},
    sentinels={"nvidia-cublas": "not-on-amd", "cuda-python": "not-on-amd"},
    adopt=("rocm-sdk-*",),
    shims=(Shim(name="triton", version="3.5.1", requires="pytorch-triton-rocm==3.5.1"),),
    relaxed={"vllm": "its pin is too narrow"},
    needs={"sympy": ">=1.13.3"},
)
DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "cell": "rocm",
    "title": "PyTorch for ROCm",
    "index": "https://download.pytorch.org/whl/rocm6.4",
    "protected": {"torch": "2.9.1+rocm6.4", "pytorch-triton-rocm": "3.5.1"},
    "companions": {"torchaudio": "2.9.1+rocm6.4", "torch": "0"},
    "sentinels": {"nvidia-cublas": "not-on-amd", "cuda-python": "not-on-amd"},
    "adopt": ["rocm-sdk-*"],
    "shims": [{"name": "triton", "version": "3.5.1", "requires": "pytorch-triton-rocm==3.5.1"}],
    "relaxed": {"vllm": "its pin is too narrow"},
    "needs": {"sympy": ">=1.13.3"},
}
A_SHIM = DOCUMENT["shims"][0]


def refusal(document: object) -> str:
    with pytest.raises(GuardError) as caught:
        policy_from(document)
    return str(caught.value)


def test_what_is_needed_is_what_nothing_else_holds_and_goes_with_torch() -> None:
    needs = {"sympy": ">=1.13.3", "torch": ">=2", "nvidia-cublas": ">=12"}
    policy = dataclasses.replace(POLICY, needs=needs)
    assert policy.needed() == {"sympy": ">=1.13.3"}
    relaxed = {name: policy.is_relaxed(name) for name in ("torch", "vllm", "sympy")}
    assert relaxed == {"torch": False, "vllm": True, "sympy": False}
    without = dataclasses.replace(policy, relaxed={"torch": "another"})
    assert without.is_relaxed("sympy")
    assert (without.needed(), without.pinned()) == ({}, {})


def is_taken(field: str, value: object) -> bool:
    try:
        policy_from({"schema": 1, field: value})
    except GuardError:
        return False
    return True


def test_a_policy_is_written_and_read_to_the_letter() -> None:
    assert POLICY.document() == DOCUMENT
    assert policy_from(DOCUMENT) == POLICY


def test_what_a_policy_leaves_out_is_empty() -> None:
    assert policy_from({"schema": 1}) == Policy(cell="", title="")


def test_every_field_of_a_policy_is_read_from_its_own() -> None:
    for field, value in DOCUMENT.items():
        if field != "schema":
            assert policy_from({"schema": 1, field: value}).document()[field] == value


def test_a_policy_is_read_as_utf_8_whatever_the_machine_speaks(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_bytes(json.dumps({"schema": 1, "title": "für ROCm"}, ensure_ascii=False).encode())
    assert read_policy(path).title == "für ROCm"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the policy must be an object"),
        ({}, "schema is None, this reader knows 1"),
        ({"schema": 2}, "schema is 2, this reader knows 1"),
        ({"schema": 1, "z": 1, "b": 2}, "unknown field 'b'"),
        ({"schema": 1, "adopt": "torch"}, "adopt must be a list"),
        ({"schema": 1, "adopt": ["torch", 1]}, "adopt must be a list of patterns"),
        ({"schema": 1, "shims": "x"}, "shims must be a list"),
        ({"schema": 1, "index": "a b"}, "index must be a URL"),
        ({"schema": 1, "index": 1}, "index must be one line of text"),
        ({"schema": 1, "cell": "a\nb"}, "cell must be one line of text"),
        ({"schema": 1, "title": None}, "title must be one line of text"),
        ({"schema": 1, "protected": []}, "protected must map names to lines of text"),
        ({"schema": 1, "protected": {"torch": 1}}, "protected must map names to lines of text"),
        ({"schema": 1, "relaxed": {"a": "b\nc"}}, "relaxed must map names to lines of text"),
        ({"schema": 1, "relaxed": {"A": "b"}}, "relaxed: 'A' is no normalized distribution name"),
        ({"schema": 1, "relaxed": {1: "b"}}, "relaxed: 1 is no normalized distribution name"),
        ({"schema": 1, "companions": {"a": "1 2"}}, "companions: a: '1 2' is no version"),
        ({"schema": 1, "sentinels": {"a": ""}}, "sentinels: a: '' is no version"),
        ({"schema": 1, "needs": {"a": "2"}}, "needs: a: '2' is no version specifier"),
        ({"schema": 1, "shims": [1]}, "a shim has name, version and requires"),
        ({"schema": 1, "shims": [A_SHIM | {"more": "x"}]}, "a shim has name, version and requires"),
        ({"schema": 1, "shims": [A_SHIM | {"name": "A"}]},
         "shims: 'A' is no normalized distribution name"),
        ({"schema": 1, "shims": [A_SHIM | {"version": "/"}]}, "shims: triton: '/' is no version"),
        ({"schema": 1, "shims": [A_SHIM | {"requires": "a>=1"}]},
         "shims: triton: requires must be one exact version"),
        ({"schema": 1, "shims": [A_SHIM | {"requires": 1}]},
         "shims: triton: requires must be one exact version"),
    ],
)  # fmt: skip
def test_a_policy_that_is_not_right_says_what_is_wrong(document: object, message: str) -> None:
    assert refusal(document) == message


def test_a_file_that_is_not_right_is_named_with_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    for text, words in (
        ('{"schema": 3}', "schema is 3, this reader knows 1"),
        ("{", "not JSON: "),
    ):
        path.write_text(text)
        with pytest.raises(GuardError) as caught:
            read_policy(path)
        assert str(caught.value).startswith(f"{path}: {words}")
    with pytest.raises(GuardError) as caught:
        read_policy(tmp_path / "gone")
    assert str(caught.value) == f"{tmp_path / 'gone'}: No such file or directory"


LOWER, LETTERS, DIGITS = string.ascii_lowercase, string.ascii_letters, string.digits
UNFIT_FOR_A_COMMAND = string.whitespace + "'\"`$\\"


def in_a_version(one: str) -> bool:
    return is_taken("protected", {"torch": f"1{one}1"})


def starting_a_version(one: str) -> bool:
    return is_taken("protected", {"torch": one})


def in_a_name(one: str) -> bool:
    return is_taken("relaxed", {f"a{one}b": "why"})


def ending_a_name(one: str) -> bool:
    return is_taken("relaxed", {f"a{one}": "why"}) or is_taken("relaxed", {f"{one}a": "why"})


def in_an_index(one: str) -> bool:
    return is_taken("index", f"https://a{one}b")


def in_a_requirement(one: str) -> bool:
    return is_taken("shims", [A_SHIM | {"requires": f"a==1{one}1"}])


def in_a_required_name(one: str) -> bool:
    return is_taken("shims", [A_SHIM | {"requires": f"a{one}b==1"}])


@pytest.mark.parametrize(
    ("taken", "characters"),
    [
        (in_a_version, LETTERS + DIGITS + ".+!_-"),
        (starting_a_version, LETTERS + DIGITS),
        (in_a_name, LOWER + DIGITS + "-"),
        (ending_a_name, LOWER + DIGITS),
        (in_an_index, "".join(sorted(set(string.printable) - set(UNFIT_FOR_A_COMMAND)))),
        (in_a_requirement, LETTERS + DIGITS + ".+!_-"),
        (in_a_required_name, LOWER + DIGITS + "-"),
    ],
)
def test_these_characters_and_no_others_are_taken(
    taken: Callable[[str], bool], characters: str
) -> None:
    assert {one for one in string.printable if taken(one)} == set(characters)


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x85", "\u2028", "a\nb"])
def test_no_line_of_a_policy_ends_early(end: str) -> None:
    for field in ("cell", "title", "index"):
        assert not is_taken(field, f"a{end}")
    for field in ("protected", "companions", "sentinels", "relaxed"):
        assert not is_taken(field, {"torch": f"1{end}"})
        assert not is_taken(field, {f"torch{end}": "1"})
    for part in ("name", "version", "requires"):
        assert not is_taken("shims", [A_SHIM | {part: A_SHIM[part] + end}])


@pytest.mark.parametrize(
    ("requires", "taken"),
    [("a==1", True), ("a===1", True), ("a=1", False), ("a====1", False), ("==1", False),
     ("a==", False), ("a==1,b==2", False), ("a == 1", False)],
)  # fmt: skip
def test_a_shim_requires_one_exact_version(requires: str, *, taken: bool) -> None:
    assert is_taken("shims", [A_SHIM | {"requires": requires}]) is taken


def test_pins_are_in_order_and_what_is_installed_goes_before_what_would_fit() -> None:
    assert list(POLICY.pinned().items()) == [
        ("pytorch-triton-rocm", "3.5.1"),
        ("torch", "2.9.1+rocm6.4"),
        ("torchaudio", "2.9.1+rocm6.4"),
        ("triton", "3.5.1"),
    ]


def test_what_must_not_arrive_is_in_order_with_its_reason() -> None:
    assert list(POLICY.forbidden().items()) == [
        ("cuda-python", "not-on-amd"),
        ("nvidia-cublas", "not-on-amd"),
    ]
    relaxed = POLICY.relax("cuda-python", "for its headers")
    assert relaxed.forbidden() == {"nvidia-cublas": "not-on-amd"}


def test_relaxing_adds_a_reason_and_changes_nothing_else() -> None:
    relaxed = POLICY.relax("triton", "own build").relax("vllm", "another reason")
    assert relaxed.document() == DOCUMENT | {
        "relaxed": {"vllm": "another reason", "triton": "own build"}
    }
    assert "triton" not in relaxed.pinned()
    assert POLICY.document() == DOCUMENT


def test_the_torch_of_a_policy_is_a_phrase() -> None:
    assert POLICY.holds() == "torch 2.9.1+rocm6.4"
    assert Policy(cell="", title="").holds() == "the torch of its base"


@given(st.text(string.ascii_letters + string.digits + "-_.", min_size=1, max_size=20))
def test_a_normalized_name_stays_as_it_is_and_is_the_same_for_every_spelling(name: str) -> None:
    once = normalized(name)
    assert normalized(once) == once
    assert once == normalized(name.upper()) == normalized(name.replace("-", "_.-"))
    assert not set(once) & set(string.ascii_uppercase + "_.")


names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
versions = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.+!_-]{0,8}", fullmatch=True)
lines = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)


@given(
    st.builds(
        Policy,
        cell=lines,
        title=lines,
        protected=st.dictionaries(names, versions, max_size=3),
        companions=st.dictionaries(names, versions, max_size=3),
        sentinels=st.dictionaries(names, versions, max_size=3),
        adopt=st.lists(lines, max_size=2).map(tuple),
        relaxed=st.dictionaries(names, lines, max_size=2),
    )
)
def test_every_policy_reads_back_as_it_was_written(policy: Policy) -> None:
    assert policy_from(json.loads(json.dumps(policy.document()))) == policy
