"""The actions and images that CI uses, pinned, from data/actions.toml and pods.toml. Edge."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from warpfront.system.store import read_text


def pinned_actions() -> Mapping[str, tuple[str, str]]:
    """Name -> `owner/action@commit`, and the version that the commit is."""
    text = read_text(Path(__file__).parents[1] / "data" / "actions.toml") or ""
    rows = tomllib.loads(text)
    return {name: (row["uses"], row["version"]) for name, row in rows.items()}


def pinned_images() -> Mapping[str, str]:
    """What a pod is for -> its image, by digest."""
    text = read_text(Path(__file__).parents[1] / "data" / "pods.toml") or ""
    return {name: row["image"] for name, row in tomllib.loads(text).items()}
