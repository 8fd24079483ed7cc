"""From a cell and its lock to the build context of its image: text in, text out, the same bytes
every time. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import jinja2

from warpfront.errors import BlockedError, RenderError
from warpfront.images.protection import GUARD_ENVIRONMENT, POLICY, RELAXED
from warpfront.images.slimming import slim_files
from warpfront.images.stages import BYTE_CODE_FILES
from warpfront.images.templating import Sandbox
from warpfront.model import (
    ENVIRONMENT_PYTHON,
    Cell,
    Compiler,
    ImageFile,
    LockedWheel,
    Refused,
    RenderedImage,
    WheelLock,
    frozen,
)
from warpfront.wheels.lock import difference

DOCKERFILE = "Dockerfile"
REQUIREMENTS = "requirements.txt"
_TEMPLATE_NAME = "Dockerfile.j2"
# What may stand in a Dockerfile through a variable: one word, nothing that ends a line or a quote,
# and nothing
# that Docker or a shell would expand. `{{ value | words }}`, for quoted text and comments, also
# takes these.
_WORD = re.compile(r"[A-Za-z0-9._:/@+=,%~\-]*\Z")
_WORDS = re.compile(r"[A-Za-z0-9 ._:/@+=,;%~()\-]*\Z")


# What a template can raise by itself: in expressions, loops, and templates that include themselves.
_TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class _Words(str):
    """Text that a template declared to stand where several words are harmless."""

    __slots__ = ()


class Templates:
    """The folders of a project's images: relative path below `images/` -> what lies there. Their
    templates are compiled once; what cannot go into an image blocks the cells that would have it.
    """

    def __init__(self, sources: Mapping[str, str | ImageFile | Refused]) -> None:
        self._sources = {
            name: ImageFile(content=one.encode()) if isinstance(one, str) else one
            for name, one in sources.items()
        }
        self._environment = Sandbox(
            loader=jinja2.FunctionLoader(self._text),
            undefined=jinja2.StrictUndefined,
            finalize=_safe,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )
        self._environment.filters["words"] = _words

    def rendered(self, folder: str, variables: dict[str, object]) -> str:
        """The text of the folder's Dockerfile. Raises what Jinja2 does in its middle."""
        return self._environment.rendered(self.dockerfile(folder), variables)

    def dockerfile(self, folder: str) -> jinja2.Template:
        try:
            return self._environment.get_template(f"{folder}/{_TEMPLATE_NAME}")
        except jinja2.TemplateNotFound as error:
            raise RenderError(
                f"images/{error.name}: no such template",
                hint="create it, or correct `template:` in matrix.yaml",
            ) from None
        except jinja2.TemplateSyntaxError as error:
            raise RenderError(f"images/{error.name}:{error.lineno}: {error.message}") from None

    def assets(self, folder: str) -> dict[str, ImageFile]:
        """Files beside the template that go into the build context as they are. Raises
        `BlockedError` for the first that cannot.
        """
        prefix, read = f"{folder}/", f"{folder}/{REQUIREMENTS}"
        return {
            name.removeprefix(prefix): self._file(name)
            for name in self._sources
            if name.startswith(prefix) and name != read and not name.endswith(".j2")
        }

    def _file(self, name: str) -> ImageFile:
        found = self._sources[name]
        if isinstance(found, Refused):
            raise BlockedError(
                f"images/{name}: {found.reason}",
                hint="images hold files, and links to files of the same folder: copy it there",
            )
        return found

    def _text(self, name: str) -> str | None:
        """The text of a template, for Jinja2; None where there is none."""
        if name not in self._sources:
            return None
        file = self._file(name)
        if file.link:
            raise BlockedError(f"images/{name}: a template is a file, not a link to {file.link}")
        try:
            return file.content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise BlockedError(
                f"images/{name}: not UTF-8 text (byte {error.start})", hint="templates are text"
            ) from None


def render(
    cell: Cell,
    lock: WheelLock,
    templates: Templates,
    *,
    parent: Cell | None = None,
    parent_lock: WheelLock | None = None,
    guard: Mapping[str, str] | None = None,
) -> RenderedImage:
    """The build context of `cell`: a Dockerfile, the hash-pinned requirements that this image adds
    to its parent's, and the files of `guard` (`images.protection`). Raises `RenderError` for an
    unknown variable or a value that could change the instructions.
    """
    guard = guard or {}
    wheels = difference(lock, parent_lock) if parent_lock is not None else lock.wheels
    try:
        variables = _variables(cell, parent, wheels, guard)
        dockerfile = templates.rendered(cell.template, variables)
    except _TEMPLATE_ERRORS as error:
        raise RenderError(
            f"images/{cell.template}/{_TEMPLATE_NAME}: {_said(error)} (cell {cell.id})"
        ) from None
    ours = {**BYTE_CODE_FILES, **slim_files(cell.slim)} if wheels else {}
    files = {**guard, **ours, DOCKERFILE: _squeezed(dockerfile)}
    if wheels:
        files[REQUIREMENTS] = requirements_text(wheels)
    assets = templates.assets(cell.template)
    for name in assets:
        _refuse_overlap(name, files, f"images/{cell.template}")
    assets = {name: file for name, file in assets.items() if name not in files}
    return RenderedImage(cell_id=cell.id, files=frozen(files), wheels=wheels, assets=assets)


def _refuse_overlap(name: str, files: Mapping[str, str], folder: str) -> None:
    """A file where a folder of ours goes, or the other way round. (One of ours in the place of one
    of theirs is no clash: ours it is.)
    """
    for ours in files:
        if ours.startswith(f"{name}/") or name.startswith(f"{ours}/"):
            raise RenderError(
                f"{folder}/{name}: stands where {ours} goes", hint="give it another name"
            )


def _said(error: Exception) -> str:
    """What is wrong, in Jinja2's words; of other exceptions also what they are."""
    if isinstance(error, jinja2.TemplateNotFound):
        return f"images/{error.name}: no such template"
    if isinstance(error, jinja2.TemplateError):
        return str(error.message)
    return f"{type(error).__name__}: {error}"


def requirements_text(wheels: tuple[LockedWheel, ...]) -> str:
    """Hash-pinned requirements, one wheel a line, as `pip` and `uv` read them."""
    return "".join(
        f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in sorted(wheels)
    )


def _variables(
    cell: Cell,
    parent: Cell | None,
    wheels: tuple[LockedWheel, ...],
    guard: Mapping[str, str],
) -> dict[str, object]:
    compiler = cell.compiler or Compiler()
    brings_own_torch = bool(cell.stack)
    return {
        "cell": cell,
        "from_reference": parent.local_reference if parent is not None else cell.base.pinned,
        "wheels": wheels,
        "creates_environment": parent is None and brings_own_torch,
        "python": ENVIRONMENT_PYTHON if brings_own_torch else cell.base.interpreter,
        "environment": sorted({**cell.environment, **compiler.environment}.items()),
        "apt": compiler.apt,
        "programs": compiler.programs,
        "libraries": compiler.libraries,
        "guarded": POLICY in guard,
        "sealed": POLICY in guard and brings_own_torch,
        "guard_environment": sorted(GUARD_ENVIRONMENT.items()),
        "on_guarded": parent is not None,
        "relaxed": RELAXED in guard,
        "slim": bool(cell.slim),
    }


def _safe(value: object) -> object:
    if isinstance(value, _Words):
        return value
    return _checked(str(value), _WORD)


def _words(value: object) -> _Words:
    return _Words(_checked(str(value), _WORDS))


def _checked(text: str, allowed: re.Pattern[str]) -> str:
    if not allowed.match(text):
        raise RenderError(
            f"a value is not fit for a Dockerfile: {text!r}",
            hint="quotes, line breaks, $, # and \\ could change the instructions; see matrix.yaml",
        )
    return text


_BLANK_LINES = re.compile(r"\n{3,}")


def _squeezed(text: str) -> str:
    """Without the runs of blank lines that includes leave behind."""
    return _BLANK_LINES.sub("\n\n", text).strip("\n") + "\n"
