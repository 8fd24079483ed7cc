"""Templates of Dockerfiles, rendered in Jinja2's sandbox: nothing of Python is in reach. What a
template may cost is limited by `template_process`, in whose child this runs. Edge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from warpfront.errors import BlockedError, RenderError
from warpfront.system.tree_files import ImageFile, Unreadable

TEMPLATE_NAME = "Dockerfile.j2"
LONGEST_TEXT = 1 << 20
# What may stand in a Dockerfile through a variable: one word, nothing that ends a line or a quote,
# and nothing that Docker or a shell would expand. `{{ value | words }}`, for quoted text and
# comments, also takes the second.
_WORD = re.compile(r"[A-Za-z0-9._:/@+=,%~\-]*\Z")
_WORDS = re.compile(r"[A-Za-z0-9 ._:/@+=,;%~()\-]*\Z")


class _Words(str):
    """Text that a template declared to stand where several words are harmless."""

    __slots__ = ()


class Renderer:
    """A renderer of Dockerfiles of `sources` (relative path -> file); templates compile once."""

    def __init__(self, sources: Mapping[str, ImageFile | Unreadable]) -> None:
        self._sources = sources
        self._environment = ImmutableSandboxedEnvironment(
            loader=jinja2.FunctionLoader(self._text),
            undefined=jinja2.StrictUndefined,
            finalize=_safe,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )
        self._environment.filters["words"] = lambda value: _Words(_checked(value, _WORDS))

    def render(self, folder: str, variables: Mapping[str, object], *, label: str = "") -> str:
        """Return the text of the folder's Dockerfile. Raise `RenderError` for what is wrong with
        the template, with `label` in its message; `BlockedError` for a file that is no template.
        """
        name = f"{folder}/{TEMPLATE_NAME}"
        try:
            return _joined(self._environment.get_template(name).generate(variables))
        except (RenderError, BlockedError, MemoryError):
            raise
        except jinja2.TemplateNotFound as error:
            raise RenderError(
                f"images/{error.name}: no such template",
                hint="create it, or correct `template:` in matrix.yaml",
            ) from None
        except jinja2.TemplateSyntaxError as error:
            raise RenderError(f"images/{error.name}:{error.lineno}: {error.message}") from None
        except Exception as error:  # noqa: BLE001 - a template can raise whatever its values can
            text = error.message if isinstance(error, jinja2.TemplateError) else ""
            words = text or f"{type(error).__name__}: {error}"
            raise RenderError(f"images/{name}: {words}{label}") from None

    def _text(self, name: str) -> str | None:
        """Return the text of a template, for Jinja2; None where there is none."""
        file = self._sources.get(name)
        if file is None:
            return None
        if isinstance(file, Unreadable):
            raise BlockedError(
                f"images/{name}: {file.reason}",
                hint="images hold files, and links to files of the same folder: copy it there",
            )
        if file.link:
            raise BlockedError(f"images/{name}: a template is a file, not a link to {file.link}")
        try:
            return file.content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BlockedError(
                f"images/{name}: not UTF-8 text (byte {error.start})", hint="templates are text"
            ) from None


def _joined(pieces: Iterable[str]) -> str:
    joined, length = list[str](), 0
    for piece in pieces:
        joined.append(piece)
        length += len(piece)
        if length > LONGEST_TEXT:
            raise ValueError(f"it gives more than {LONGEST_TEXT:,} characters")
    return "".join(joined)


def _safe(value: object) -> object:
    return value if isinstance(value, _Words) else _checked(value, _WORD)


def _checked(value: object, allowed: re.Pattern[str]) -> str:
    text = str(value)
    if not allowed.match(text):
        raise RenderError(
            f"a value is not fit for a Dockerfile: {text!r}",
            hint="quotes, line breaks, $, # and \\ could change the instructions; see matrix.yaml",
        )
    return text
