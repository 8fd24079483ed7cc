"""Rendering in this process: the renderer of `template_process`, without its child and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from warpfront.errors import BlockedError, RenderError
from warpfront.images.built import RenderedImage
from warpfront.images.render import Templates, context_parts, rendered_image
from warpfront.images.template_process import Rendered, RenderRequest
from warpfront.images.templating import Renderer
from warpfront.matrix.cell import Cell
from warpfront.system.tree_files import ImageFile, Unreadable
from warpfront.wheels.lock.values import WheelLock


def renderer_of(sources: Mapping[str, ImageFile | Unreadable]) -> Renderer:
    """Return the renderer of these texts. It compiles each once, for all tests that have it."""
    return _renderer_of(frozenset(sources.items()))


@cache
def _renderer_of(sources: frozenset[tuple[str, ImageFile | Unreadable]]) -> Renderer:
    return Renderer(dict(sources))


def templates_of(files: Mapping[str, str | ImageFile | Unreadable]) -> Templates:
    """The folders of images, whose templates may be given as text."""
    return {
        name: ImageFile(content=file.encode()) if isinstance(file, str) else file
        for name, file in files.items()
    }


def render(cell: Cell, lock: WheelLock, templates: Templates, **more: Any) -> RenderedImage:
    """The build context of a cell; `more` as in `context_parts`."""
    parts = context_parts(cell, lock, **more)
    renderer, label = renderer_of(templates), f" (cell {cell.id})"
    text = renderer.render(cell.template, parts.variables, label=label)
    return rendered_image(parts, templates, text)


def render_here(
    sources: Mapping[str, ImageFile | Unreadable], requests: Sequence[RenderRequest]
) -> list[Rendered]:
    """A stand-in for `render_templates`: unit tests start no program."""
    renderer = renderer_of(sources)

    def one(request: RenderRequest) -> Rendered:
        try:
            return renderer.render(request.folder, request.variables, label=request.label)
        except (RenderError, BlockedError) as error:
            return error

    return [one(request) for request in requests]
