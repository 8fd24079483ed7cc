"""Configuration of the robots that move pins: Dependabot and Renovate. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront.ci.flow import HEADER, filled

DEPENDABOT = ".github/dependabot.yml"
RENOVATE = ".github/renovate.json"


def robot_files(templates: Mapping[str, str], *, requirements: str) -> dict[str, str]:
    """Return both, by path. They move the pins of actions, in the workflows, and of what jobs
    install, in `requirements`; Renovate also the digests of bases, which Dependabot does not read.
    """
    folder, pattern = requirements.rpartition("/")[0], requirements.replace(".", "[.]")
    return {
        DEPENDABOT: HEADER + filled(templates["dependabot.yml"], folder=folder),
        RENOVATE: filled(templates["renovate.json"], pattern=pattern),
    }
