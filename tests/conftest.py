"""Rules of the suite: no child process unless a test is marked for it; goldens are reviewed as
diffs; what only sweeps runs when it is asked for.
"""

from __future__ import annotations

import gc
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import fixed_seeds
import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from shared_files import SharedFiles
from sweeps import Sweeps

GOLDEN = Path(__file__).parent / "golden"
_MAY_START_PROCESSES = {"process", "network", "docker", "gpu"}

_start = subprocess.Popen.__init__

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden; review the diff"
    )
    parser.addoption(
        "--exhaustive", action="store_true", help="run the sweeps too, and try ten times as much"
    )
    parser.addoption(
        "--share", type=Path, metavar="FOLDER", help="run files that no other pytest of FOLDER took"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A busy machine is no failure of a property: examples have no deadline. What is imported and
    collected stays to the end: looking through it again and again took a third of the time.
    """
    gc.disable()
    sweeps = bool(config.getoption("--exhaustive"))
    if sweeps:
        fixed_seeds.draw_anew()
    else:
        _try_no_constants_of_ours()
    # A change is judged by the same examples twice; sweeps look for others.
    hypothesis.settings.register_profile(
        "warpfront", max_examples=300 if sweeps else 30, derandomize=not sweeps, deadline=None
    )
    hypothesis.settings.load_profile("warpfront")
    if sweeps and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Sweeps())
    if share := config.getoption("--share"):
        config.pluginmanager.register(SharedFiles(share))
    # A shell starts what it puts in the background without Ctrl-C, and children inherit that.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _try_no_constants_of_ours() -> None:
    """hypothesis parses every module that is loaded for values to try, anew in a fresh clone and in
    each worker: three seconds, and other examples with every other order of tests. It has no
    setting for that; where it calls it otherwise, all stays as it is.
    """
    providers.is_local_module_file = lambda _path: False  # type: ignore[attr-defined,assignment]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`scripts/test processes` collects files that have this word, `unit` leaves its tests out."""
    for path in {item.path for item in items if item.get_closest_marker("process")}:
        if "mark.process" not in path.read_text(encoding="utf-8"):
            raise pytest.UsageError(f"{path}: its marker `process` is not in its text")
    if config.getoption("--exhaustive"):
        return
    swept = {item for item in items if item.get_closest_marker("exhaustive")}
    if swept:
        config.hook.pytest_deselected(items=list(swept))
        items[:] = [item for item in items if item not in swept]


def _refuse(_: object, *arguments: object, **__: object) -> None:
    raise AssertionError(f"a test without the marker `process` started {arguments}")


# Hooks and no fixtures: five thousand tests pass here.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The suite cannot build, download or delete by accident."""
    starts = not _MAY_START_PROCESSES.isdisjoint(mark.name for mark in item.iter_markers())
    subprocess.Popen.__init__ = _start if starts else _refuse  # type: ignore[method-assign, assignment]


def pytest_sessionfinish() -> None:
    subprocess.Popen.__init__ = _start  # type: ignore[method-assign]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with tests/golden/<path>, or rewrite it with --update-golden."""

    def compare(path: str, text: str) -> None:
        file = GOLDEN / path
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"no golden {path}: run pytest --update-golden, review the new file"
        assert text == file.read_text(encoding="utf-8")

    return compare
