"""Each recipe of CONTRIBUTING.md, followed on a copy of the repository, does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipes import PAGE, Copy, RecipeError, copy_repository, follow, read_recipes

RECIPES = read_recipes(PAGE.read_text(encoding="utf-8"))
# Its last block computes with torch: tests/checks/test_recipe.py follows it.
WITH_TORCH = {"An operator check"}


def test_there_is_a_recipe_for_each_thing_that_grows() -> None:
    wanted = {"A version row", "An image", "A scan rule", "A log reader", "A command", "A step"}
    assert {*wanted, "A vendor", *WITH_TORCH} <= RECIPES.keys()


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """One for all: who follows several of these does so in one clone, too."""
    return copy_repository(tmp_path_factory.mktemp("repository"))


@pytest.mark.process
@pytest.mark.parametrize("title", sorted(RECIPES.keys() - WITH_TORCH))
def test_a_recipe_can_be_followed(title: str, repository: Copy) -> None:
    follow(RECIPES[title], repository)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    (tmp_path / "list.txt").write_text("first\n  second\n")
    return Copy(tmp_path)


def block(said: str, text: str = "new\n", kind: str = "text") -> str:
    return f"{said}\n\n```{kind}\n{text}```\n"


@pytest.mark.parametrize(
    ("recipe", "left"),
    [
        (block("It goes in `list.txt`, below `first`:"), "first\nnew\n  second\n"),
        (block("In `list.txt`, below `second`:"), "first\n  second\nnew\n"),
        (block("At the end of `list.txt`:"), "first\n  second\nnew\n"),
        ("In `list.txt`, the first `s` becomes `S`.", "firSt\n  second\n"),
        ("In `list.txt`, the first `first` becomes `1`,\n`second`\nbecomes `2`.", "1\n  2\n"),
    ],
)
def test_a_recipe_changes_what_it_says(recipe: str, left: str, copy: Copy) -> None:
    follow(recipe, copy)
    assert (copy.root / "list.txt").read_text() == left


def test_a_recipe_makes_the_file_that_it_says(copy: Copy) -> None:
    follow(block("A new file `below/it.txt`, for this:"), copy)
    assert (copy.root / "below" / "it.txt").read_text() == "new\n"


@pytest.mark.process
def test_what_a_console_shows_comes_out_in_its_order(copy: Copy) -> None:
    follow(block("", "$ cat list.txt\nfi...\n  second\n", "console"), copy)
    with pytest.raises(RecipeError, match="does not show: first"):
        follow(block("", "$ cat list.txt\n  second\nfirst\n", "console"), copy)
    with pytest.raises(RecipeError, match="ended with 1"):
        follow(block("", "$ cat none.txt\n", "console"), copy)


@pytest.mark.parametrize(
    "recipe",
    [
        block("Somewhere:"),
        block("A new file `list.txt`:"),
        block("In `list.txt`, below `third`:"),
        "In `list.txt`, the first `third` becomes `fourth`.",
    ],
)
def test_a_recipe_that_cannot_be_followed_is_an_error(recipe: str, copy: Copy) -> None:
    with pytest.raises(RecipeError):
        follow(recipe, copy)
