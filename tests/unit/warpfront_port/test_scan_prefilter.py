"""A module is read if it names anything of the tables, whatever else it names or does not."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.python import rule_matches
from warpfront_port.scan.python.mentions import IMPORTS


@pytest.mark.parametrize("name", sorted(IMPORTS))
def test_an_import_is_seen_in_a_module_of_nothing_else(name: str) -> None:
    source = SourceText(path=PurePosixPath("module.py"), text=f"import {name}\n")
    assert IMPORTS[name] in {seen.rule for seen in rule_matches(source, Context())}
