"""What a variable may put into a Dockerfile, character by character; what templates are told of a
cell; and which files go along.
"""

from __future__ import annotations

import string

import pytest
from builders import A_BASE, a_cell, a_child, a_lock, a_wheel
from hypothesis import given
from hypothesis import strategies as st
from rendering import render, templates_of

from warpfront.errors import RenderError
from warpfront.images.render import BYTE_CODE_FILES, GUARD_ENVIRONMENT, requirements_text
from warpfront.matrix.cell import Compiler

IN_A_WORD = set(string.ascii_letters + string.digits + "._:/@+=,%~-")
IN_QUOTED_TEXT = IN_A_WORD | set(" ;()")
EVERY_ASCII_CHARACTER = [chr(code) for code in range(128)]
CELL = a_cell(compiler=Compiler(environment={"A": "1"}))
LOCK = a_lock(CELL)


def rendered(template: str, **changes: object) -> str:
    """The Dockerfile that a template of one line gives, without its last line break."""
    cell = a_cell(**changes) if changes else CELL
    image = render(cell, LOCK, templates_of({"torch/Dockerfile.j2": template}))
    return image.files["Dockerfile"].removesuffix("\n")


def is_let_through(template: str, text: str) -> bool:
    try:
        return text in rendered(template, title=f"a{text}b")
    except RenderError:
        return False


def test_a_word_takes_these_characters_and_no_other() -> None:
    let_through = {one for one in EVERY_ASCII_CHARACTER if is_let_through("{{ cell.title }}", one)}
    assert let_through == IN_A_WORD


def test_quoted_text_takes_spaces_brackets_and_semicolons_beside_them_and_no_other() -> None:
    template = '"{{ cell.title | words }}"'
    let_through = {one for one in EVERY_ASCII_CHARACTER if is_let_through(template, one)}
    assert let_through == IN_QUOTED_TEXT


@pytest.mark.parametrize("template", ["{{ cell.title }}", "{{ cell.title | words }}"])
@pytest.mark.parametrize("text", ["$HOME", "${HOME}", "$(id)", "a$", "a\n", "\na", "a\r", "a\x85"])
def test_nothing_that_expands_or_ends_a_line_gets_in(template: str, text: str) -> None:
    with pytest.raises(RenderError) as caught:
        rendered(template, title=text)
    assert caught.value.message == f"a value is not fit for a Dockerfile: {text!r}"
    assert caught.value.hint == (
        "quotes, line breaks, $, # and \\ could change the instructions; see matrix.yaml"
    )


@given(st.text(min_size=1).filter(lambda text: not text.isascii()))
def test_no_character_beyond_ascii_gets_in(text: str) -> None:
    for template in ("{{ cell.title }}", "{{ cell.title | words }}"):
        with pytest.raises(RenderError, match="not fit for a Dockerfile"):
            rendered(template, title=text)


def test_a_value_that_is_no_text_is_judged_as_it_would_be_written() -> None:
    assert rendered("{{ 12 }}") == "12"
    with pytest.raises(RenderError, match="not fit for a Dockerfile"):
        rendered("{{ ['a b'] }}")
    with pytest.raises(RenderError, match="not fit for a Dockerfile"):
        rendered("{{ ['a$'] | words }}")


def test_what_was_said_to_be_words_keeps_its_spaces() -> None:
    assert rendered('LABEL a="{{ cell.title | words }}"', title="a b; (c)") == 'LABEL a="a b; (c)"'


def test_an_unknown_variable_is_named_with_its_template_and_its_cell() -> None:
    with pytest.raises(RenderError) as caught:
        rendered("FROM {{ bas_image }}")
    assert caught.value.message == (
        f"images/torch/Dockerfile.j2: 'bas_image' is undefined (cell {CELL.id})"
    )


def test_a_template_that_is_not_there_says_what_to_do() -> None:
    with pytest.raises(RenderError) as caught:
        render(CELL, LOCK, templates_of({}))
    assert caught.value.message == "images/torch/Dockerfile.j2: no such template"
    assert caught.value.hint == "create it, or correct `template:` in matrix.yaml"


def test_a_template_that_does_not_parse_is_named_by_its_line() -> None:
    with pytest.raises(RenderError) as caught:
        rendered("FROM x\n{% if %}\n")
    assert caught.value.message.startswith("images/torch/Dockerfile.j2:2: ")


def test_blocks_leave_no_line_of_their_own_and_blank_lines_come_singly() -> None:
    template = (
        "\n\nFROM a\n  {% if true %}\nRUN b\n  {% endif %}\n\n\n\n\nRUN c\n\n\nRUN d\n\nRUN e\n\n"
    )
    assert rendered(template) == "FROM a\nRUN b\n\nRUN c\n\nRUN d\n\nRUN e"


def test_only_line_breaks_are_taken_from_the_ends() -> None:
    assert rendered("\n  X a X  \n\n") == "  X a X  "
    assert rendered("\nX a X\n\n") == "X a X"


def test_an_include_keeps_the_line_break_at_its_end() -> None:
    templates = templates_of(
        {"torch/Dockerfile.j2": "{% include '_shared/a.j2' %}RUN b\n", "_shared/a.j2": "RUN a\n"}
    )
    assert render(CELL, LOCK, templates).files["Dockerfile"] == "RUN a\nRUN b\n"


def test_the_context_holds_the_files_beside_the_template_and_no_others() -> None:
    templates = templates_of(
        {
            "torch/Dockerfile.j2": "FROM x\n",
            "torch/part.j2": "not a file of the image",
            "torch/requirements.txt": "numpy",
            "torch/app/main.py": "1\n",
            "torch/app/torch/data.txt": "2\n",
            "torch/app/requirements.txt": "of the image's own program\n",
            "other/main.py": "of another image",
        }
    )
    rendered_image = render(CELL, LOCK, templates, guard={"guard/a.py": "3\n"})
    assert rendered_image.cell_id == CELL.id
    assert rendered_image.wheels == LOCK.wheels
    assert {name: file.content.decode() for name, file in rendered_image.context.items()} == {
        **BYTE_CODE_FILES,
        "app/main.py": "1\n",
        "app/requirements.txt": "of the image's own program\n",
        "app/torch/data.txt": "2\n",
        "guard/a.py": "3\n",
        "Dockerfile": "FROM x\n",
        "requirements.txt": requirements_text(LOCK.wheels),
    }


def test_a_guard_cannot_be_replaced_by_a_file_beside_the_template() -> None:
    templates = templates_of({"torch/Dockerfile.j2": "FROM x\n", "torch/policy.json": "mine"})
    files = render(CELL, LOCK, templates, guard={"policy.json": "the guard's"}).files
    assert files["policy.json"] == "the guard's"


def test_requirements_are_sorted_and_pinned_by_hash() -> None:
    numpy, torch = a_wheel("numpy", "2.4.6", sha256="a" * 64), a_wheel(sha256="b" * 64)
    assert requirements_text((torch, numpy)) == (
        f"numpy==2.4.6 --hash=sha256:{'a' * 64}\ntorch==2.13.0+cpu --hash=sha256:{'b' * 64}\n"
    )


def test_an_image_without_wheels_has_no_requirements() -> None:
    child = a_child(CELL)
    templates = templates_of(
        {"serve/Dockerfile.j2": "FROM {{ from_reference }}\n{{ wheels | length }}"}
    )
    image = render(child, LOCK, templates, parent=CELL, parent_lock=LOCK)
    assert dict(image.files) == {"Dockerfile": f"FROM {CELL.local_reference}\n0\n"}


ROOT = a_cell()
BASE_TORCH = a_cell(stack=())
DEVEL = a_child(
    ROOT,
    "devel",
    environment={"Z": "cell", "B": "cell"},
    compiler=Compiler(
        apt=("g++", "hipcc"),
        programs="/opt/bin",
        libraries="/opt/lib",
        environment={"A": "compiler", "B": "compiler"},
    ),
)
FACTS = """\
{{ from_reference }}
{{ creates_environment }} {{ python }} {{ on_guarded }} {{ guarded }} {{ relaxed }}
{% for name, value in environment %}{{ name }}={{ value }} {% endfor %}

{% for one in apt %}{{ one }} {% endfor %}programs={{ programs }} libraries={{ libraries }}
{{ cell.id }} {{ wheels | length }} {{ guard_environment | length }}
"""


def facts(cell: object, **more: object) -> list[str]:
    templates = templates_of({f"{cell.template}/Dockerfile.j2": FACTS})  # type: ignore[attr-defined]
    return render(cell, LOCK, templates, **more).files["Dockerfile"].splitlines()  # type: ignore[arg-type]


def test_a_root_with_a_stack_of_its_own_makes_an_environment_on_its_base() -> None:
    guards = len(GUARD_ENVIRONMENT)
    assert facts(ROOT) == [
        A_BASE.pinned,
        "True /opt/venv/bin/python False False False",
        "",
        "programs= libraries=",
        f"{ROOT.id} 2 {guards}",
    ]


def test_a_root_whose_torch_comes_with_its_base_uses_the_base_s_python() -> None:
    assert facts(BASE_TORCH)[1] == "False python3.11 False False False"


def test_a_child_makes_no_environment_and_stands_on_a_guard() -> None:
    lines = facts(DEVEL, parent=ROOT, parent_lock=LOCK)
    assert lines == [
        ROOT.local_reference,
        "False /opt/venv/bin/python True False False",
        "A=compiler B=compiler Z=cell ",
        "g++ hipcc programs=/opt/bin libraries=/opt/lib",
        f"{DEVEL.id} 0 {len(GUARD_ENVIRONMENT)}",
    ]


def test_what_the_guard_brings_decides_what_the_template_is_told() -> None:
    assert facts(ROOT, guard={"policy.json": "{}"})[1].endswith("False True False")
    assert facts(ROOT, guard={"relaxed.json": "{}"})[1].endswith("False False True")


def test_what_the_guard_sets_is_said_in_order() -> None:
    template = "{% for name, value in guard_environment %}{{ name }}\n{% endfor %}"
    assert rendered(template).split() == sorted(GUARD_ENVIRONMENT)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("cell.__class__.__mro__", "unsafe"),
        ("''.__class__.__mro__[1].__subclasses__()", "unsafe"),
        ("cell.__init__.__globals__['os'].system('id')", "unsafe"),
        ("self.__init__.__globals__", "unsafe"),
        ("'{0.__class__}'.format(cell)", "unsafe"),
        ("wheels.append(1)", "append"),
        ("range(10**9) | list | length", "Range too big"),
        ("1 // 0", "ZeroDivisionError"),
        ("wheels[7].name + 1", "7"),
    ],
)
def test_a_template_reaches_nothing_but_what_it_is_given(expression: str, said: str) -> None:
    with pytest.raises(RenderError, match="images/torch/Dockerfile") as caught:
        rendered("{{ (" + expression + ") | string | length }}")
    assert said in caught.value.message


def test_a_template_that_includes_itself_is_an_error_of_its_own() -> None:
    with pytest.raises(RenderError, match=r"images/torch/Dockerfile\.j2: RecursionError"):
        rendered("{% include 'torch/Dockerfile.j2' %}")


def test_what_slims_an_image_goes_along_where_it_adds_wheels() -> None:
    slim = a_cell(slim=("torch/test/*",))
    told = templates_of({"torch/Dockerfile.j2": "{{ 'less' if slim else 'all' }}"})
    image = render(slim, LOCK, told)
    assert (image.files["Dockerfile"], image.files["slim/globs.txt"]) == (
        "less\n",
        "torch/test/*\n",
    )
    assert render(CELL, LOCK, told).files["Dockerfile"] == "all\n"
    assert set(render(slim, LOCK, told, parent_lock=LOCK).files) == {"Dockerfile"}


@pytest.mark.parametrize(
    "line",
    [
        "ENV HSA_OVERRIDE_GFX_VERSION=11.0.0",
        'ENV A=1 \\\n    HSA_OVERRIDE_GFX_VERSION="11.0.0"',
        "env HSA_OVERRIDE_GFX_VERSION 11.0.0",
        "ENV HIP_VISIBLE_DEVICES=0",
    ],
)
def test_a_template_sets_nothing_that_matrix_yaml_may_not(line: str) -> None:
    with pytest.raises(RenderError, match=r"images/torch/Dockerfile\.j2: ENV H"):
        rendered(f"FROM x\n{line}\n", vendor="amd", targets=("gfx942",))
    assert line.strip() in rendered(f"FROM x\n{line}\n", vendor="cpu")


def test_a_template_may_say_the_arch_of_its_only_target() -> None:
    line = "ENV HSA_OVERRIDE_GFX_VERSION=11.0.0"
    assert line in rendered(f"FROM x\n{line}\n", vendor="amd", targets=("gfx1100",))
