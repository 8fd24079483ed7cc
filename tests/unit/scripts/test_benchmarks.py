"""The benchmarks measure what they say; how long it takes is not asserted anywhere."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from warpfront.matrix import compat
from warpfront.matrix.cell import Cell
from warpfront.matrix.reading import read_matrix
from warpfront.pipeline.workspace import open_workspace
from warpfront.wheels.lock.pylock import lock_inputs, staleness

ROOT = Path(__file__).resolve().parents[3]


def _script(name: str) -> Any:
    """A script without `.py`, as a module: its `main` is not run."""
    loader = importlib.machinery.SourceFileLoader(
        name.replace("-", "_"), str(ROOT / "benchmarks" / name)
    )
    spec = importlib.util.spec_from_file_location(loader.name, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module", autouse=True)
def scripts_folder() -> Iterator[None]:
    before = list(sys.path)
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path[:] = before


@pytest.fixture(scope="module")
def benchmark(scripts_folder: None) -> ModuleType:
    _ = scripts_folder
    return importlib.import_module("benchmark")


@pytest.fixture(scope="module")
def plan(scripts_folder: None) -> Any:
    _ = scripts_folder
    return _script("bench-plan")


@pytest.fixture(scope="module")
def noop(scripts_folder: None) -> Any:
    _ = scripts_folder
    return _script("bench-noop")


@pytest.fixture(scope="module")
def cold(scripts_folder: None) -> Any:
    _ = scripts_folder
    return _script("bench-cold")


@pytest.fixture(scope="module")
def layers(scripts_folder: None) -> Any:
    _ = scripts_folder
    return _script("bench-layers")


def test_an_engines_disk_counts_a_link_once_and_tells_what_is_unpacked(
    layers: Any, tmp_path: Path
) -> None:
    kept = tmp_path / "data" / "containerd" / "daemon"
    packed, unpacked = kept / "io.containerd.content.v1", kept / "io.containerd.snapshotter.v1.o"
    for folder in (packed, unpacked):
        folder.mkdir(parents=True)
    (packed / "blob").write_bytes(os.urandom(100_000))
    (packed / "again").hardlink_to(packed / "blob")
    (unpacked / "file").write_bytes(os.urandom(300_000))
    alone = layers.snapshot_bytes(tmp_path)
    assert 300_000 <= alone < 310_000
    assert 400_000 <= layers.disk_bytes(tmp_path) < 420_000


def test_costs_are_medians_beside_the_named_design(layers: Any) -> None:
    def cost(seconds: float, mebibytes: int) -> Any:
        size = mebibytes << 20
        return layers.Cost(
            processor_seconds=seconds,
            seconds=1.0,
            disk_bytes=size,
            snapshot_bytes=size // 2,
            packed_bytes=size // 4,
        )

    costs = {"ours": [cost(7, 4), cost(99, 8), cost(7, 8)], "theirs": [cost(10, 16)]}
    text = layers.cost_table(costs, "theirs")
    assert "| ours | 7.0 | 0.70 | 1 | 8 | 4 | 2 |" in text
    assert "| theirs | 10.0 | 1.00 | 1 | 16 | 8 | 4 |" in text


def test_contenders_take_turns_and_each_turn_is_prepared(benchmark: Any) -> None:
    turns: list[str] = []
    timings = benchmark.time_alternating(
        {"a": lambda: turns.append("a"), "b": lambda: turns.append("b")},
        repeats=2,
        before_each=lambda: turns.append("-"),
    )
    assert "".join(turns) == "-a-b-a-b"
    assert [(one.name, len(one.seconds)) for one in timings] == [("a", 2), ("b", 2)]


def test_ratios_are_of_the_medians_and_to_the_named_contender(benchmark: Any) -> None:
    ours = benchmark.Timings(name="ours", seconds=(1.0, 9.0, 2.0))
    theirs = benchmark.Timings(name="theirs", seconds=(4.0, 4.0, 4.0))
    text = benchmark.timings_table((ours, theirs), against="theirs")
    assert "| ours | 1.00 | 2.00 | 0.50 |" in text
    assert "| theirs | 4.00 | 4.00 | 1.00 |" in text


@pytest.mark.parametrize("cells", [200, 1_000])
def test_the_synthetic_matrix_has_exactly_the_cells_asked_for(plan: Any, cells: int) -> None:
    matrix = read_matrix(plan.matrix_text(cells), path="matrix.yaml", compat=compat.packaged())
    assert len({cell.id for cell in matrix.cells}) == cells
    assert {cell.image for cell in matrix.cells if cell.parent is None} == {"torch"}


@pytest.mark.parametrize("cells", [0, 150, 1_000_000])
def test_a_size_the_synthetic_matrix_cannot_have_is_refused(plan: Any, cells: int) -> None:
    if cells == 0:
        with pytest.raises(Exception, match="matrix"):
            read_matrix(plan.matrix_text(cells), path="matrix.yaml", compat=compat.packaged())
        return
    with pytest.raises(ValueError, match="no multiple of 200"):
        plan.matrix_text(cells)


@pytest.fixture
def two_images(plan: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Twenty cells are enough to run every stage."""
    monkeypatch.setattr(plan, "IMAGES", 2)
    monkeypatch.setattr(plan, "_CELLS_PER_SUBSET", 20)
    return 20


def test_every_stage_of_the_plan_benchmark_runs_from_memory_and_from_files(
    plan: Any, two_images: int, tmp_path: Path
) -> None:
    for lock_files in (False, True):
        folder = tmp_path / str(lock_files)
        seconds = plan.plan_and_render(two_images, folder, lock_files=lock_files)
        assert set(seconds) == set(plan.STAGES)
        assert min(seconds.values()) > 0


def test_the_plan_benchmark_refuses_to_measure_stale_locks(
    plan: Any, two_images: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = plan.made_locks

    def stale(cells: tuple[Cell, ...]) -> Any:
        locks = good(cells)
        last = cells[-1].id
        return {**locks, last: dataclasses.replace(locks[last], inputs_digest="0" * 64)}

    monkeypatch.setattr(plan, "made_locks", stale)
    with pytest.raises(RuntimeError, match=r"stale: .*inputs changed"):
        plan.plan_and_render(two_images, tmp_path, lock_files=False)


def test_time_per_cell_is_relative_to_the_first_size(plan: Any) -> None:
    one = dict.fromkeys(plan.STAGES, 0.25) | {"peak_mebibytes": 50.0}
    ten = dict.fromkeys(plan.STAGES, 5.0) | {"peak_mebibytes": 90.0}
    first, last = plan.results_table({1_000: one, 10_000: ten}).splitlines()[2:]
    assert first.endswith("| 1.00 | 1,000 | 50 | 1.00 |")
    assert last.endswith("| 20.00 | 500 | 90 | 2.00 |")


def test_the_twenty_cells_are_two_images_with_nine_on_each(noop: Any, tmp_path: Path) -> None:
    bases = yaml.load((ROOT / "matrix.yaml").read_text("utf-8"), yaml.CSafeLoader)["bases"]
    (tmp_path / "matrix.yaml").write_text(noop.matrix_text(bases, "debian-12"), "utf-8")
    (tmp_path / "images").mkdir()
    workspace = open_workspace(tmp_path)
    noop.write_locks(workspace, tmp_path / "wheels")
    cells = workspace.matrix.cells
    assert len(cells) == 20
    assert sum(cell.parent is None for cell in cells) == 2
    assert all(workspace.folders.lock_path(cell.id).is_file() for cell in cells)
    wheels = {path.name for path in (tmp_path / "wheels").iterdir()}
    assert "torch-2.13.0+cpu-py3-none-any.whl" in wheels
    assert "bench_app_9-1.0-py3-none-any.whl" in wheels


def test_a_bake_file_becomes_one_build_a_target_on_its_parents_tag(noop: Any) -> None:
    target = {"labels": {"l": "1"}, "output": ["type=image"], "context": "c", "contexts": {}}
    child = {"tags": ["localhost/app:1"], "contexts": {"localhost/base:1": "target:base"}}
    bake = {"target": {"base": target | {"tags": ["localhost/base:1"]}, "app": target | child}}
    base_argv, app_argv = noop.build_argvs(bake)
    assert base_argv[0] == app_argv[0] == "build"
    assert "--tag=localhost/base:1" in base_argv
    assert not [word for word in base_argv if word.startswith("--build-context")]
    assert "--build-context=localhost/base:1=docker-image://localhost/base:1" in app_argv
    assert app_argv[-1] == "c"


def test_only_reused_cells_count_as_a_build_with_nothing_to_do(noop: Any) -> None:
    assert noop.count_reused('{"a": {"reused": true}, "b": {"reused": false}, "c": {}}') == 1


def test_the_dockerfile_by_hand_pins_every_wheel_in_one_step(cold: Any, plan: Any) -> None:
    matrix = read_matrix(plan.matrix_text(200), path="matrix.yaml", compat=compat.packaged())
    lock = next(iter(plan.made_locks(matrix.cells[:1]).values()))
    text = cold.dockerfile_by_hand(lock, "python3.11")
    assert text.count("\nRUN ") == 1
    assert all(f" {wheel.name}=={wheel.version}" in text for wheel in lock.wheels)


def test_the_measured_cell_is_the_real_one_under_another_name(cold: Any, tmp_path: Path) -> None:
    workspace = open_workspace(ROOT)
    cells = {cell.id: cell for cell in workspace.matrix.cells}
    text = (ROOT / "matrix.yaml").read_text("utf-8")
    for number, cell_id in enumerate(cold.CELLS):
        real = cells[cell_id]
        matrix = read_matrix(
            cold.matrix_of_one(text, real), path="matrix.yaml", compat=compat.packaged()
        )
        (own,) = matrix.cells
        root = tmp_path / str(number)
        (root / "images").mkdir(parents=True)
        lock = cold.copied_lock(real, own, root)
        assert (own.stack, own.targets, own.base) == (real.stack, real.targets, real.base)
        assert own.local_reference != real.local_reference
        assert staleness(lock, lock_inputs(own, None, None)) == ""


def test_cold_builds_are_compared_to_the_last_contender(benchmark: Any, cold: Any) -> None:
    ours = benchmark.Timings(name="ours", seconds=(10.0,))
    hand = benchmark.Timings(name="by hand", seconds=(20.0,))
    sizes = {"ours": 3 * cold.MIB, "by hand": 4 * cold.MIB}
    text = cold.cold_table((ours, hand), sizes)
    assert "| ours | 10.0 | 10.0 | 0.50 | 3.0 | 0.750 |" in text
