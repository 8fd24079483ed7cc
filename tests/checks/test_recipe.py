"""The recipe for a case of the catalogue, followed on a copy: its seeded faults are caught."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from recipes import PAGE, copy_repository, follow, read_recipes

RECIPE = read_recipes(PAGE.read_text(encoding="utf-8"))["A case of the catalogue"]


@pytest.mark.process
def test_the_recipe_for_an_operator_can_be_followed(tmp_path: Path) -> None:
    follow(RECIPE, copy_repository(tmp_path))
