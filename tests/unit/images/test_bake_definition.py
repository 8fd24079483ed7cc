"""What bake is told of each image: the whole definition, and every string of it as plain text."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warpfront.images.bake import BakeTarget, bake_file, proxy_script

A_TARGET = BakeTarget(
    name="cell-a",
    context="build/cell-a/context",
    contexts={"wheels": "views/1", "localhost/demo/torch": "target:cell-b"},
    tag="localhost/demo/torch:1",
    labels={"b": "2", "a": "1"},
    machine="x86_64",
    output="type=docker",
    secrets=("id=ca,src=ca.pem", "id=proxies,src=proxies.sh"),
)


def test_a_target_is_defined_by_what_it_is_built_from_and_nothing_else() -> None:
    assert bake_file([A_TARGET]) == {
        "group": {"default": {"targets": ["cell-a"]}},
        "target": {
            "cell-a": {
                "context": "build/cell-a/context",
                "dockerfile": "Dockerfile",
                "contexts": {"wheels": "views/1", "localhost/demo/torch": "target:cell-b"},
                "tags": ["localhost/demo/torch:1"],
                "labels": {"a": "1", "b": "2"},
                "output": ["type=docker"],
                "platforms": ["linux/amd64"],
                "secret": ["id=ca,src=ca.pem", "id=proxies,src=proxies.sh"],
            }
        },
    }


def test_a_stage_of_a_file_is_built_without_a_name() -> None:
    stage = dataclasses.replace(A_TARGET, tag="", stage="builder")
    document: Any = bake_file([A_TARGET, dataclasses.replace(stage, name="stage")])
    whole, part = document["target"].values()
    assert part == {**whole, "tags": [], "target": "builder"}


def test_labels_are_in_order_so_that_the_file_is_the_same_every_time() -> None:
    document: Any = bake_file([A_TARGET])
    assert list(document["target"]["cell-a"]["labels"]) == ["a", "b"]


def interpolated(text: str) -> str:
    """What bake makes of a string without variables: a doubled sign before a brace is one."""
    assert not re.search(r"(?<![$])(?:[$]{2})*[$]\{|(?<!%)(?:%%)*%\{", text), text
    return re.sub(r"([$%])\1\{", r"\1{", text)


@given(st.text(alphabet="$%{}ab", max_size=12).filter(lambda text: not re.search(r"[$%]{2}", text)))
def test_bake_reads_back_every_text_that_was_meant(text: str) -> None:
    changed = {"context": text, "tag": text, "output": text, "secrets": (text,)}
    facts: dict[str, Any] = {
        "name": "a", "machine": "x86_64", "contexts": {"wheels": text}, "labels": {"label": text},
        **changed,
    }  # fmt: skip
    document: Any = bake_file([BakeTarget(**facts)])
    found = json.loads(json.dumps(document["target"]["a"]))
    for value in (
        found["context"],
        found["contexts"]["wheels"],
        found["labels"]["label"],
        *found["tags"],
        *found["output"],
        *found["secret"],
    ):
        assert interpolated(value) == text


def test_proxies_are_exported_in_order_under_lower_case_names_and_quoted() -> None:
    script = proxy_script({"NO_PROXY": "a, b", "HTTPS_PROXY": "http://me:it's@proxy.test"})
    assert script == (
        "export https_proxy='http://me:it'\"'\"'s@proxy.test'\nexport no_proxy='a, b'\n"
    )
