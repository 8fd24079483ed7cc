"""An image from its build context to its labels. Words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warpfront.matrix.cell import BaseSource
from warpfront.system.digests import digest_of
from warpfront.system.tree_files import ImageFile

if TYPE_CHECKING:
    # A machine that verifies itself may lack pydantic.
    from warpfront.wheels.lock.values import LockedWheel

CREATED = "org.opencontainers.image.created"
REVISION = "org.opencontainers.image.revision"
"""Labels that say when an image was built, and from which commit."""
_COMMENT = re.compile(r"\s*#(?!\s*(?:syntax|escape|check)\s*=)").match


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedImage:
    """The build context of one cell: what was written for it, file name -> text, `Dockerfile` among
    them, and the files of its folder as they are. Same cell and lock, same bytes and modes.

    `wheels` are those this image itself installs (the parent's are already there).
    """

    cell_id: str
    files: Mapping[str, str]
    wheels: tuple[LockedWheel, ...]
    assets: Mapping[str, ImageFile] = field(default_factory=dict)

    @property
    def context(self) -> dict[str, ImageFile]:
        """Return all files by their path in the build context."""
        written = {name: ImageFile(content=text.encode()) for name, text in self.files.items()}
        return dict(sorted({**self.assets, **written}.items()))

    @property
    def parts(self) -> Mapping[str, str]:
        """Return what decides the image, by name: its files, less comments, and its wheels."""
        files = {f"file {name}": digest_of(f.identity) for name, f in self.context.items()}
        # Comments decide nothing: a new title is no new image. In a here-document, `#` is none.
        text = self.files.get("Dockerfile", "")
        if "<<" not in text:
            text = "".join(line for line in text.splitlines(keepends=True) if not _COMMENT(line))
        wheels = {f"wheel {w.name}": f"{w.version} {w.sha256}" for w in sorted(self.wheels)}
        return {**files, "file Dockerfile": digest_of(text), **wheels}

    @property
    def digest(self) -> str:
        return digest_of(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedBase:
    """A base as it will be used: `identity` is the registry digest or the imported image's id,
    `recipe` the digest of what a bootstrap was made by.
    """

    name: str
    source: BaseSource
    reference: str
    identity: str
    recipe: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltImage:
    """An image in the engine. `content_hash` is what a verification is about. `seconds` run from
    the start of the bake, which a chain of images shares, until this image was there. `builder` and
    `invocation` are the addresses of the CI workflow and of its run, "" outside CI.
    """

    cell_id: str
    reference: str
    image_id: str
    content_hash: str
    size_bytes: int
    base: ResolvedBase
    reused: bool
    seconds: float
    log: str | None
    builder: str = ""
    invocation: str = ""
