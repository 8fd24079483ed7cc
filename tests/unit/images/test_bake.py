"""The bake file: flat, complete, and with nothing left to interpolate."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from builders import A_PROJECT, A_RESOLVED_BASE, a_cell, a_lock

from warpfront.images.bake import BakeTarget, bake_file, proxy_script
from warpfront.images.labels import CONTENT_HASH, image_labels
from warpfront.system.tree_files import Provenance


def a_target(**changes: Any) -> BakeTarget:
    facts: dict[str, Any] = {
        "name": "cell-a",
        "context": "build/cell-a/context",
        "contexts": {"wheels": "views/1"},
        "tag": "localhost/warpfront/torch:1",
        "labels": {"b": "2", "a": "1"},
        "output": "type=docker",
        "machine": "x86_64",
    }
    return BakeTarget(**(facts | changes))


def test_every_target_is_in_the_default_group() -> None:
    document: Any = bake_file([a_target(), a_target(name="cell-b")])
    assert document["group"]["default"]["targets"] == ["cell-a", "cell-b"]
    assert set(document["target"]) == {"cell-a", "cell-b"}


def test_an_image_is_of_the_moment_that_its_label_says_and_nothing_else_is_an_argument() -> None:
    document: Any = bake_file([a_target(moment="2026-11-18T11:06:40+00:00"), a_target(name="b")])
    assert document["target"]["cell-a"]["args"] == {"SOURCE_DATE_EPOCH": "1795000000"}
    assert "args" not in document["target"]["b"]


def test_bake_expressions_in_values_are_text() -> None:
    document = bake_file([a_target(labels={"a": "${HOME} %{if}"}, context="x/${y}")])
    text = json.dumps(document)
    assert "$${HOME} %%{if}" in text
    assert "x/$${y}" in text


def test_secrets_are_absent_unless_asked_for() -> None:
    document: Any = bake_file([a_target()])
    assert not {"secret", "args", "network"} & set(document["target"]["cell-a"])
    asked: Any = bake_file([a_target(secrets=("id=ca,src=ca.pem",))])
    assert asked["target"]["cell-a"]["secret"] == ["id=ca,src=ca.pem"]


@pytest.mark.parametrize(
    ("machine", "platform"), [("x86_64", "linux/amd64"), ("aarch64", "linux/arm64")]
)
def test_a_target_is_built_for_its_own_machine_whatever_the_builder_prefers(
    machine: str, platform: str
) -> None:
    document: Any = bake_file([a_target(machine=machine)])
    assert document["target"]["cell-a"]["platforms"] == [platform]


@pytest.mark.process
def test_a_sourced_proxy_script_gives_the_very_values() -> None:
    proxies = {"HTTPS_PROXY": "http://me:pa'ss$(id)@proxy.test:3128", "NO_PROXY": "a, b"}
    script = proxy_script(proxies) + 'printf "%s|%s" "$https_proxy" "$no_proxy"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{proxies['HTTPS_PROXY']}|{proxies['NO_PROXY']}"
    assert proxy_script({}) == ""


def test_labels_name_the_content_the_base_and_the_torch_that_was_locked() -> None:
    cell = a_cell()
    labels = image_labels(
        cell,
        project=A_PROJECT,
        lock=a_lock(cell),
        base=A_RESOLVED_BASE,
        content_hash="ff",
        provenance=Provenance(created="2026-01-01T00:00:00+00:00", revision="abc"),
        uv="0.13.9",
    )
    assert labels[CONTENT_HASH] == "ff"
    assert labels["org.opencontainers.image.base.digest"] == A_RESOLVED_BASE.identity
    assert labels["org.opencontainers.image.revision"] == "abc"
    assert labels["dev.warpfront.torch"] == "2.13.0+cpu"
    assert labels["dev.warpfront.base-source"] == "registry"
