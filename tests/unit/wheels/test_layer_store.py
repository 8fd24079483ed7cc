"""The store of layers, as several processes meet in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpfront.wheels.layer_store import LayerStore
from warpfront.wheels.wheelhouse import Wheelhouse


def test_a_maker_clears_what_was_killed_and_leaves_who_takes_layers_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "layers"
    (root / ".aside-taking").mkdir(parents=True)
    (root / ".aside-killed").write_bytes(b"half a layer")
    store = LayerStore(root, Wheelhouse(tmp_path / "wheelhouse"))
    monkeypatch.setattr(LayerStore, "_make", lambda *_: {})
    assert store.layers([()], python="3.11", on_progress=lambda *_: None, say=print) == ()
    assert [one.name for one in root.glob(".aside-*")] == [".aside-taking"]
