"""Rendering: deterministic, complete, and closed to values that could change the instructions."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from builders import A_BASE, a_cell, a_child, a_lock, a_wheel
from dockerfile_parse import DockerfileParser
from hypothesis import given, settings
from hypothesis import strategies as st
from rendering import render, templates_of

from warpfront.errors import BlockedError, RenderError
from warpfront.images.render import POLICY
from warpfront.matrix.cell import Cell, Compiler
from warpfront.system.store import read_tree
from warpfront.system.tree_files import ImageFile, Unreadable
from warpfront.wheels.lock.values import WheelLock

IMAGES = Path(__file__).parents[3] / "images"
OURS = read_tree(IMAGES)
PARENT = a_cell()
PARENT_LOCK = a_lock(PARENT)


def instructions(dockerfile: str) -> list[str]:
    parser = DockerfileParser(fileobj=io.BytesIO())
    parser.content = dockerfile
    return [one["instruction"] for one in parser.structure if one["instruction"] != "COMMENT"]


def child_lock(cell: Cell) -> WheelLock:
    return a_lock(cell, *PARENT_LOCK.wheels, a_wheel("fastapi", "1.0"))


def test_the_same_cell_and_lock_give_the_same_bytes() -> None:
    one = render(PARENT, PARENT_LOCK, OURS)
    other = render(a_cell(), a_lock(a_cell()), read_tree(IMAGES))
    assert (one.files, one.digest) == (other.files, other.digest)


def test_a_root_image_starts_from_its_pinned_base_and_makes_the_environment() -> None:
    dockerfile = render(PARENT, PARENT_LOCK, OURS).files["Dockerfile"]
    assert f"FROM {A_BASE.reference}@{A_BASE.digest} AS environment\n" in dockerfile
    assert "uv venv" in dockerfile


def test_a_child_starts_from_its_parents_image_and_installs_only_what_it_adds() -> None:
    cell = a_child(PARENT)
    rendered = render(cell, child_lock(cell), OURS, parent=PARENT, parent_lock=PARENT_LOCK)
    assert f"FROM {PARENT.local_reference}\n" in rendered.files["Dockerfile"]
    assert "uv venv" not in rendered.files["Dockerfile"]
    assert [wheel.name for wheel in rendered.wheels] == ["fastapi"]
    assert rendered.files["requirements.txt"].startswith("fastapi==1.0 --hash=sha256:")


def test_the_install_step_has_no_network_and_no_index() -> None:
    dockerfile = render(PARENT, PARENT_LOCK, OURS).files["Dockerfile"]
    for words in ("RUN --network=none", "--offline", "--no-index", "--require-hashes"):
        assert words in dockerfile


def test_a_compiler_adds_packages_and_environment() -> None:
    compiler = Compiler(apt=("g++", "hipcc"), environment={"PYTORCH_ROCM_ARCH": "gfx90a;gfx942"})
    cell = a_child(PARENT, "devel", compiler=compiler)
    rendered = render(cell, child_lock(cell), OURS, parent=PARENT, parent_lock=PARENT_LOCK)
    assert 'ENV PYTORCH_ROCM_ARCH="gfx90a;gfx942"' in rendered.files["Dockerfile"]
    assert "      hipcc \\\n" in rendered.files["Dockerfile"]


def test_a_misspelt_variable_is_an_error_and_not_an_empty_word() -> None:
    templates = templates_of({"torch/Dockerfile.j2": "FROM {{ form_reference }}\n"})
    with pytest.raises(RenderError, match=r"torch/Dockerfile.j2: 'form_reference' is undefined"):
        render(PARENT, PARENT_LOCK, templates)


def test_a_missing_template_names_the_file_to_create() -> None:
    with pytest.raises(RenderError, match=r"images/nowhere/Dockerfile.j2: no such template"):
        render(a_cell(template="nowhere"), PARENT_LOCK, OURS)


def test_files_beside_a_template_are_part_of_the_context() -> None:
    templates = templates_of({"torch/Dockerfile.j2": "FROM scratch\n", "torch/app/main.py": "1\n"})
    image = render(PARENT, PARENT_LOCK, templates)
    assert image.context["app/main.py"] == ImageFile(content=b"1\n")


def test_what_decides_an_image_is_in_its_digest() -> None:
    def digest(**files: ImageFile) -> str:
        sources = {"torch/Dockerfile.j2": ImageFile(content=b"FROM scratch\n")}
        sources |= {f"torch/{name}": file for name, file in files.items()}
        return render(PARENT, PARENT_LOCK, templates_of(sources)).digest

    one = ImageFile(content=b"1")
    others = [
        digest(),
        digest(a=one),
        digest(b=one),
        digest(a=ImageFile(content=b"1", executable=True)),
        digest(a=ImageFile(content=b"\xff")),
        digest(a=ImageFile(link="1")),
        digest(a=ImageFile(link="b"), b=one),
    ]
    assert len(set(others)) == len(others)
    assert digest(a=one, b=one) == digest(b=one, a=one)


def test_what_cannot_go_into_an_image_blocks_its_own_cells_and_names_its_path() -> None:
    templates = templates_of(
        {
            "torch/Dockerfile.j2": "FROM scratch\n",
            "serve/Dockerfile.j2": "{% include '_shared/a.j2' %}",
            "devel/Dockerfile.j2": "FROM scratch\n",
            "devel/pipe": Unreadable(reason="a FIFO, not a regular file"),
            "link/Dockerfile.j2": ImageFile(link="../torch/Dockerfile.j2"),
            "latin/Dockerfile.j2": ImageFile(content=b"# \xe9"),
            "_shared/a.j2": Unreadable(
                reason="a link that leads out of its folder, to /etc/passwd"
            ),
        }
    )
    assert render(PARENT, PARENT_LOCK, templates).files["Dockerfile"] == "FROM scratch\n"
    copy = "images hold files, and links to files of the same folder: copy it there"
    hints = {"serve": copy, "devel": copy, "latin": "templates are text"}
    for template, said in {
        "serve": "images/_shared/a.j2: a link that leads out of its folder, to /etc/passwd",
        "devel": "images/devel/pipe: a FIFO, not a regular file",
        "link": "images/link/Dockerfile.j2: a template is a file, not a link",
        "latin": "images/latin/Dockerfile.j2: not UTF-8 text (byte 2)",
    }.items():
        with pytest.raises(BlockedError) as caught:
            render(a_cell(template=template), PARENT_LOCK, templates)
        assert caught.value.message.startswith(said)
        assert caught.value.hint == hints.get(template, "")


@pytest.mark.parametrize("name", ["guard", "Dockerfile/x", "guard/a.py/x"])
def test_a_file_cannot_stand_where_a_folder_of_ours_goes(name: str) -> None:
    """A link called `guard` would take the guard's files elsewhere."""
    templates = templates_of({"torch/Dockerfile.j2": "FROM x\n", f"torch/{name}": "theirs"})
    with pytest.raises(RenderError, match=f"images/torch/{name}: stands where .* goes") as caught:
        render(PARENT, PARENT_LOCK, templates, guard={"guard/a.py": "ours"})
    assert caught.value.hint == "give it another name"


def test_what_is_guarded_and_brings_its_own_torch_is_sealed() -> None:
    templates = templates_of(
        {"torch/Dockerfile.j2": "FROM x\n{% if sealed %}# sealed{% endif %}\n"}
    )
    of_base = a_cell(stack=())
    for cell, guard, sealed in (
        (PARENT, {POLICY: "{}"}, True),
        (PARENT, {}, False),
        (of_base, {POLICY: "{}"}, False),
        (of_base, {}, False),
    ):
        rendered = render(cell, a_lock(cell), templates, guard=guard)
        assert ("# sealed" in rendered.files["Dockerfile"]) == sealed


HOSTILE = (
    "a\nRUN curl evil",
    'x" LABEL evil="1',
    "x AS y",
    "$(id)",
    "${HOME}",
    "`id`",
    "a\\",
    "# syntax=evil/frontend",
    "a\rb",
    "a\u2028b",
    "a; id",
    "a && id",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["reference", "interpreter"])
def test_a_hostile_word_is_refused(field: str, text: str) -> None:
    changes: dict[str, Any] = {field: text}
    cell = a_cell(base=dataclasses.replace(A_BASE, **changes))
    with pytest.raises(RenderError, match="not fit for a Dockerfile"):
        render(cell, PARENT_LOCK, OURS)


def fuzzed_cells(text: str) -> list[tuple[Cell, bool]]:
    """A cell for every field that reaches a template, that field holding `text`; and whether it
    is a child.
    """
    compiler = Compiler(apt=("g++",), environment={"A": "b"})
    devel = a_child(PARENT, "devel", compiler=compiler)
    return [
        (a_cell(title=text), False),
        (a_cell(id=text), False),
        (a_cell(image=text), False),
        (a_cell(base=dataclasses.replace(A_BASE, reference=text)), False),
        (a_cell(base=dataclasses.replace(A_BASE, digest=text)), False),
        (a_cell(base=dataclasses.replace(A_BASE, interpreter=text)), False),
        (a_cell(environment={"NAME": text}), False),
        (a_cell(environment={text: "value"}), False),
        (dataclasses.replace(devel, title=text), True),
        (dataclasses.replace(devel, compiler=dataclasses.replace(compiler, apt=(text,))), True),
        (
            dataclasses.replace(
                devel, compiler=dataclasses.replace(compiler, environment={"A": text})
            ),
            True,
        ),
    ]


def rendered_instructions(cell: Cell, *, is_child: bool) -> list[str]:
    if not is_child:
        return instructions(render(cell, PARENT_LOCK, OURS).files["Dockerfile"])
    image = render(cell, child_lock(cell), OURS, parent=PARENT, parent_lock=PARENT_LOCK)
    return instructions(image.files["Dockerfile"])


EXPECTED = [rendered_instructions(cell, is_child=child) for cell, child in fuzzed_cells("plain")]


# Each example renders every field of every cell.
@settings(max_examples=settings.default.max_examples // 2 if settings.default else 15)
@given(st.text(max_size=40) | st.sampled_from(HOSTILE))
def test_no_value_of_any_field_changes_the_instructions(text: str) -> None:
    for (cell, is_child), expected in zip(fuzzed_cells(text), EXPECTED, strict=True):
        try:
            found = rendered_instructions(cell, is_child=is_child)
        except RenderError:
            continue
        assert found == expected
