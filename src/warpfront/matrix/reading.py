"""matrix.yaml: the one input, read, checked and expanded to cells. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from warpfront import __version__
from warpfront.errors import MatrixError, Problem
from warpfront.matrix.cell import Cell, CompilerBase
from warpfront.matrix.cells import CellMaker
from warpfront.matrix.compat import Compat
from warpfront.matrix.expansion import expand_points
from warpfront.matrix.language import (
    SCHEMA,
    CiOptions,
    InstallText,
    Maintenance,
    MatrixText,
    Project,
)
from warpfront.matrix.release_channels import Channel, read_channels
from warpfront.matrix.runners import BuildNode, Runner, make_nodes, make_runners
from warpfront.system.document import Document, checked, read_document
from warpfront.system.sizes import counted
from warpfront.system.strict_values import extended


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A project's cells, parents before children, with warnings, compilers without torch,
    channels, machines of CI, and the source of warpfront there.
    """

    project: Project
    cells: tuple[Cell, ...]
    warnings: tuple[Problem, ...]
    compilers: tuple[CompilerBase, ...] = ()
    channels: tuple[Channel, ...] = ()
    runners: tuple[Runner, ...] = ()
    nodes: tuple[BuildNode, ...] = ()
    ci: CiOptions = field(default_factory=CiOptions)
    install: InstallText | None = None
    maintenance: Maintenance = field(default_factory=Maintenance)

    @property
    def repositories(self) -> frozenset[str]:
        """The local names of all images, without tags."""
        return frozenset(cell.repository for cell in self.cells)


def read_matrix(text: str, *, path: str, compat: Compat) -> Matrix:
    """Return `text` as a matrix. Raise `MatrixError` with every problem of it and its line."""
    document = read_document(text, path=path)
    schema = document.value.get("schema") if isinstance(document.value, dict) else None
    if isinstance(schema, int) and schema > SCHEMA:  # by that alone: its keys are not known here
        newer = f"schema {schema} is newer than schema {SCHEMA}"
        message = f"{newer}, which warpfront {__version__} reads"
        hint = "upgrade: pip install --upgrade warpfront"
        raise MatrixError((document.problem(("schema",), message, hint),))
    written = checked(document, MatrixText)
    points, problems = expand_points(written, document)
    maker = CellMaker(text=written, document=document, compat=compat)
    maker.check_images()
    maker.check_indexes()
    maker.make_compilers()
    maker.make(points)
    channels, misread = read_channels(written, document, tuple(maker.cells))
    runners, wrong_runners = make_runners(written, document)
    nodes, wrong_nodes = make_nodes(written, document)
    wrong = (*wrong_runners, *wrong_nodes, *_install_problems(written.install, document))
    every_problem = sorted({*problems, *maker.problems, *misread, *wrong})
    if every_problem:
        raise MatrixError(tuple(every_problem))
    if not maker.cells:
        hint = "`exclude:` leaves none; remove one of it"
        raise MatrixError((document.problem(("rows",), "the matrix has no cells", hint),))
    return extended(
        Matrix,
        written,
        cells=tuple(maker.cells),
        warnings=tuple(sorted(set(maker.warnings))),
        compilers=tuple(maker.compilers),
        channels=channels,
        runners=runners,
        nodes=nodes,
    )


_INSTALL_FORMS = (
    "one of `wheel` with `sha256`, `git` with `commit`, and `requirements` (a file with hashes)"
)


def _install_problems(text: InstallText | None, document: Document) -> Iterator[Problem]:
    """Yield what is wrong with `install:`."""
    if text is None:
        return
    ways = [way for way in ("wheel", "git", "requirements") if getattr(text, way)]
    if len(ways) != 1:
        message = f"`install` names {counted(len(ways), 'source')}"
        yield document.problem(("install",), message, _INSTALL_FORMS)
    for way, pin in (("wheel", "sha256"), ("git", "commit")):
        if bool(getattr(text, way)) != bool(getattr(text, pin)):
            where = ("install", way if getattr(text, way) else pin)
            message = f"`install`: `{way}` and `{pin}` go together"
            yield document.problem(where, message, _INSTALL_FORMS)


def json_schema() -> dict[str, object]:
    """Return the language of matrix.yaml as JSON Schema draft-07, which every editor reads."""
    schema = TypeAdapter(MatrixText).json_schema(ref_template="#/definitions/{model}")
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "matrix.yaml of warpfront",
        "definitions": schema.pop("$defs"),
        **schema,
    }
