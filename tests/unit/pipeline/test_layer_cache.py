"""Layers are kept in a registry where the builder can, and a build goes on where it cannot."""

from __future__ import annotations

import dataclasses

import pytest
from fakes import FakeEngine

from warpfront.images.baking import layer_cache
from warpfront.images.engine.protocol import Features

GIVEN = {"WARPFRONT_BUILD_CACHE": "registry.test/mine/build-cache"}


class Storing(FakeEngine):
    """An engine with, or without, the containerd image store."""

    def __init__(self, *, containerd: bool) -> None:
        super().__init__()
        self.containerd = containerd

    def features(self) -> Features:
        return dataclasses.replace(super().features(), containerd_store=self.containerd)


@pytest.mark.parametrize(
    ("containerd", "elsewhere", "kept"),
    [(True, False, True), (False, False, False), (False, True, True)],
    ids=["containerd's store", "docker's store", "a builder elsewhere"],
)
def test_a_cache_in_a_registry_is_for_builders_that_take_one(
    *, containerd: bool, elsewhere: bool, kept: bool
) -> None:
    engine = Storing(containerd=containerd)
    engine.elsewhere = elsewhere
    assert bool(layer_cache(engine, GIVEN)) == kept
    assert layer_cache(engine, {}) == ""
