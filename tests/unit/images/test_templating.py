"""A template that would go on for ever is stopped, by counting; those that end are not."""

from __future__ import annotations

import pytest
from builders import a_cell, a_lock

from warpfront.errors import RenderError
from warpfront.images.render import Templates, render
from warpfront.images.templating import LONGEST_RANGE

LOOPS = (
    "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)
FILTERED = "{% for a in range(1000) %}{% for b in range(1000) if false %}x{% endfor %}{% endfor %}"
MACROS = (
    "{% macro twice(n) %}{% if n %}{{ twice(n - 1) }}{{ twice(n - 1) }}{% endif %}{% endmacro %}"
    "{{ twice(40) }}"
)
RECURSIVE = (
    "{% for n in [[1, 2]] recursive %}{% if loop.depth < 40 %}{{ loop([n, n]) }}{% endif %}"
    "{% endfor %}"
)
INCLUDES = "{% include 'torch/Dockerfile.j2' %}{% include 'torch/Dockerfile.j2' %}"
BLOCKS = f"{{% block a %}}{LOOPS}{{% endblock %}}"


def rendered(text: str) -> str:
    cell = a_cell()
    image = render(cell, a_lock(cell), Templates({"torch/Dockerfile.j2": text}))
    return image.files["Dockerfile"].strip()


@pytest.mark.parametrize("text", [LOOPS, FILTERED, MACROS, RECURSIVE, BLOCKS])
def test_a_template_that_goes_on_and_on_is_stopped(text: str) -> None:
    with pytest.raises(RenderError, match="it takes more than 20,000 steps"):
        rendered(text)


def test_templates_that_include_each_other_for_ever_are_stopped() -> None:
    with pytest.raises(RenderError, match="RecursionError"):
        rendered(INCLUDES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ 9 ** 9 ** 9 ** 9 }}", "a power that is too large"),
        ("{{ 'a' * 10000000000 }}", "repeated too often"),
        ("{{ 10000000000 * [1] }}", "repeated too often"),
        ("{% for n in range(1001) %}{% endfor %}", "a range of more than 1,000"),
        ("{{ lipsum(100000) }}", "lipsum"),
        ("{{ 'a' | center(10000000000) }}", "center"),
    ],
)
def test_what_makes_much_of_little_is_refused(text: str, said: str) -> None:
    with pytest.raises(RenderError, match=said):
        rendered(text)


def test_each_rendering_has_its_own_steps() -> None:
    cell, templates = a_cell(), Templates({"torch/Dockerfile.j2": _passes(9)})
    for _ in range(3):
        assert render(cell, a_lock(cell), templates).files["Dockerfile"] == "\n"


def test_arithmetic_and_loops_that_end_are_left_alone() -> None:
    assert rendered("{{ 2 ** 10 }}-{{ 3 * 4 }}-{{ 'ab' * 2 }}") == "1024-12-abab"
    assert rendered(f"{{{{ range({LONGEST_RANGE}) | sum }}}}") == "499500"
    text = "{% for n in range(9) if n is odd %}{{ loop.index }}{{ n }},{% else %}x{% endfor %}"
    assert rendered(text) == "11,23,35,47,"


def test_a_step_is_not_in_reach_of_a_template() -> None:
    with pytest.raises(RenderError):
        rendered("{{ environment.step() }}")


def _passes(thousands: int) -> str:
    inner = "{% for b in range(1000) %}{% endfor %}"
    return f"{{% for a in range({thousands}) %}}{inner}{{% endfor %}}"
