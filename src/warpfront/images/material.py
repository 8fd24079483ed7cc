"""The inputs of every image of a project. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpfront.images.render import Templates
from warpfront.matrix.compat import Compat
from warpfront.wheels.requirements import RequirementList


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Parts of every image of a project, except its cell and lock: templates, the guard's own files
    by name, the compat table, which decides what a guard refuses, and requirements files by path.
    """

    templates: Templates
    guard: Mapping[str, str]
    compat: Compat
    requirements: Mapping[str, RequirementList]
