"""The renderer itself, in this process: what a template may say, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from warpfront.errors import BlockedError, RenderError
from warpfront.images.templating import LONGEST_TEXT, Renderer
from warpfront.system.tree_files import ImageFile, Unreadable

NAME = "app/Dockerfile.j2"


def render(text: str, variables: Mapping[str, object] | None = None) -> str:
    return Renderer({NAME: ImageFile(content=text.encode())}).render("app", variables or {})


def test_lines_of_blocks_go_and_the_last_line_end_stays() -> None:
    text = "FROM a\n  {% for one in [1, 2] %}\nRUN {{ one }}\n  {% endfor %}\nUSER b\n"
    assert render(text) == "FROM a\nRUN 1\nRUN 2\nUSER b\n"


def test_text_of_a_template_is_no_markup() -> None:
    assert render('LABEL a="<b> & c"\n{{ "d" }}') == 'LABEL a="<b> & c"\nd'


@pytest.mark.parametrize("value", ["a b", "a\nb", "$a", 'a"', "a#", "a\\b"])
def test_a_value_is_one_word(value: str) -> None:
    with pytest.raises(RenderError, match="a value is not fit for a Dockerfile: ") as caught:
        render("RUN {{ value }}", {"value": value})
    assert repr(value) in caught.value.message
    assert caught.value.hint.startswith("quotes, line breaks, $, # and \\ could change")


def test_several_words_stand_where_the_template_says_so_and_no_quote_does() -> None:
    assert render("# {{ value | words }}", {"value": "a b; (c)"}) == "# a b; (c)"
    with pytest.raises(RenderError, match="not fit for a Dockerfile"):
        render("# {{ value | words }}", {"value": 'a "b"'})


def test_of_a_long_value_both_ends_are_shown() -> None:
    with pytest.raises(RenderError) as caught:
        render("{{ value }}", {"value": "$" * 5_000})
    assert "$ [...] $" in caught.value.message
    assert len(caught.value.message) < 2_500


def test_a_text_is_as_long_as_the_limit_and_no_longer() -> None:
    half = "a" * (LONGEST_TEXT // 2)
    template = "{{ half }}{{ half }}"
    assert len(render(template, {"half": half})) == LONGEST_TEXT
    with pytest.raises(RenderError, match="it gives more than 1,048,576 characters"):
        render(f"{template}b", {"half": half})


def test_a_name_that_nothing_has_is_named_with_the_label() -> None:
    renderer = Renderer({NAME: ImageFile(content=b"RUN {{ nothing }}")})
    with pytest.raises(RenderError) as caught:
        renderer.render("app", {}, label=" for cell x")
    assert caught.value.message == "images/app/Dockerfile.j2: 'nothing' is undefined for cell x"
    with pytest.raises(RenderError) as caught:
        renderer.render("app", {})
    assert caught.value.message == "images/app/Dockerfile.j2: 'nothing' is undefined"


def test_what_is_no_template_is_blocked_with_its_reason() -> None:
    files: dict[str, ImageFile | Unreadable] = {
        "absent": Unreadable(reason="a link out of images/"),
        "linked": ImageFile(content=b"", link="other"),
        "binary": ImageFile(content=b"\xff"),
    }
    for name, reason in {
        "absent": "a link out of images/",
        "linked": "a template is a file, not a link to other",
        "binary": "not UTF-8 text (byte 0)",
    }.items():
        with pytest.raises(BlockedError) as caught:
            Renderer({NAME: files[name]}).render("app", {})
        assert caught.value.message == f"images/{NAME}: {reason}"
    with pytest.raises(RenderError, match="no such template"):
        Renderer({}).render("none", {})
