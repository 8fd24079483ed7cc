"""The actions and images that CI uses, pinned. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from packaging.version import Version

from warpfront.system.packaged import packaged_toml


def pinned_actions() -> Mapping[str, tuple[str, str]]:
    """Return `owner/action@commit` by name, each with the version of the commit."""
    rows = packaged_toml("actions.toml")
    return {name: (row["uses"], row["version"]) for name, row in rows.items()}


_PIN = re.compile(
    r"^\s*(?:- )?uses: ([\w./-]+)@([0-9a-f]{40}) # v(\d+(?:\.\d+)*)\s*$", re.MULTILINE
)


def kept_pins(
    packaged: Mapping[str, tuple[str, str]], texts: Iterable[str]
) -> Mapping[str, tuple[str, str]]:
    """Return the pins of `packaged`, each replaced by a newer one in a project's own workflows:
    a commit with a version comment, as Dependabot and Renovate write them.
    """
    pins = dict(packaged)
    names = {uses.partition("@")[0]: name for name, (uses, _) in packaged.items()}
    for text in texts:
        for action, commit, version in _PIN.findall(text):
            name = names.get(action)
            if name and Version(version) > Version(pins[name][1]):
                pins[name] = (f"{action}@{commit}", f"v{version}")
    return pins


def pinned_images() -> Mapping[str, str]:
    """Return the images of pods by their purpose, each pinned by digest."""
    return {name: row["image"] for name, row in packaged_toml("pods.toml").items()}
