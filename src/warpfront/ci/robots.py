"""Configuration of the robots that move pins: Dependabot and Renovate. Pure."""

from __future__ import annotations

import json
from typing import Any

from warpfront.ci.flow import HEADER, yaml_text

DEPENDABOT = ".github/dependabot.yml"
RENOVATE = ".github/renovate.json"
BASES = (
    r"reference: (?<depName>[^\s:]+(?::\d+/[^\s:]+)?):(?<currentValue>[\w.-]+)\s+"
    r"digest: (?<currentDigest>sha256:[a-f0-9]{64})"
)
"""A base in matrix.yaml, as Renovate's regular expressions name its parts."""
_COOLDOWN_DAYS = 7


def robot_files(*, requirements: str) -> dict[str, str]:
    """By path. Both move the pins of actions, in the workflows, and of what jobs install, in
    `requirements`; Renovate also the digests of bases, which Dependabot does not read.
    """
    return {
        DEPENDABOT: HEADER + yaml_text(_dependabot(requirements)),
        RENOVATE: json.dumps(_renovate(requirements), indent=2) + "\n",
    }


def _dependabot(requirements: str) -> dict[str, Any]:
    folder = requirements.rpartition("/")[0]
    places = {"github-actions": "/", "pip": f"/{folder}"}
    return {
        "version": 2,
        "updates": [
            {
                "package-ecosystem": ecosystem,
                "directory": place,
                "schedule": {"interval": "weekly"},
                "cooldown": {"default-days": _COOLDOWN_DAYS},
                "groups": {ecosystem: {"patterns": ["*"]}},
            }
            for ecosystem, place in places.items()
        ],
    }


def _renovate(requirements: str) -> dict[str, Any]:
    return {
        "$schema": "https://docs.renovatebot.com/renovate-schema.json",
        "description": HEADER.strip("# \n"),
        "extends": ["config:recommended", "helpers:pinGitHubActionDigests"],
        "minimumReleaseAge": f"{_COOLDOWN_DAYS} days",
        "pip_requirements": {"managerFilePatterns": [f"/^{requirements.replace('.', '[.]')}$/"]},
        "customManagers": [
            {
                "customType": "regex",
                "managerFilePatterns": ["/^matrix[.]yaml$/"],
                "matchStrings": [BASES],
                "datasourceTemplate": "docker",
            }
        ],
        "packageRules": [
            {"matchManagers": ["github-actions"], "groupName": "actions"},
            {
                "description": "A tag of a base says what is in it: its digest moves, it does not.",
                "matchManagers": ["custom.regex"],
                "matchUpdateTypes": ["major", "minor", "patch"],
                "enabled": False,
            },
        ],
    }
