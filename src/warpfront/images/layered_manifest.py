"""A manifest of a base and layers of wheels, for a build to start from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+zstd"


def config_on(
    base: Mapping[str, Any], layers: Sequence[tuple[str, Sequence[str]]], *, created: str
) -> dict[str, Any]:
    """Return the configuration of `base` with more layers: each its diff_id and the wheels in
    it, which `docker history` shows.
    """
    history = [
        {"created": created, "created_by": f"warpfront layer: {' '.join(wheels)}"}
        for _, wheels in layers
    ]
    rootfs = {
        "type": "layers",
        "diff_ids": [*base["rootfs"]["diff_ids"], *(diff_id for diff_id, _ in layers)],
    }
    earlier = [{**entry, "created": created} for entry in base.get("history", ())]
    return {**base, "created": created, "history": [*earlier, *history], "rootfs": rootfs}


def manifest_on(
    base: Mapping[str, Any], layers: Sequence[tuple[str, int]], config: tuple[str, int]
) -> dict[str, Any]:
    """Return the manifest of `base` with more layers (digest, size) and another configuration."""
    blobs = [{"mediaType": LAYER, "digest": digest, "size": size} for digest, size in layers]
    digest, size = config
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "digest": digest, "size": size},
        "layers": [*base["layers"], *blobs],
    }
