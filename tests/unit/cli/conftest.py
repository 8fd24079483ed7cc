"""invoke takes the help out of a task that it parses: tests of the command line find it whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from warpfront.cli.tasks import namespace


@pytest.fixture(autouse=True)
def whole_help() -> Iterator[None]:
    """Put the help of every task back."""
    texts = {name: dict(task.help) for name, task in namespace.tasks.items()}
    yield
    for name, text in texts.items():
        namespace.tasks[name].help = text
