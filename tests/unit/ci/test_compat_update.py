"""`invoke compat`: what each index holds, written, held against what is written, and proposed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge_interfaces import ForgeInterface, github_job, gitlab_job, standing_in
from standins import Fault, Index, serve_index, stand_in_wheel

from warpfront.ci.forge_api import forge_api
from warpfront.commands.compat_update import (
    BRANCH,
    Update,
    propose_update,
    read_indexes,
    refuse_stale,
    update_text,
    write_contents,
)
from warpfront.errors import InputError, StaleError
from warpfront.matrix.compat import CONTENTS, Compat
from warpfront.matrix.compat_table import Table, read_table
from warpfront.matrix.index_contents import Contents
from warpfront.matrix.index_evidence import read_contents
from warpfront.pipeline.workspace import compat_of, contents_path
from warpfront.wheels.sources import Site

SMALL = (Path(__file__).parents[2] / "compat" / "small.yaml").read_text("utf-8")


class Quiet:
    """Somebody to tell who forgets it."""

    def say(self, text: str) -> None: ...

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None: ...

    def step(self, cell_id: str, text: str) -> None: ...

    def line(self, cell_id: str, text: str) -> None: ...


def a_torch(folder: Path, version: str) -> Path:
    tag = "cp311-cp311-manylinux_2_28_x86_64"
    return stand_in_wheel(folder, "torch", version, requires=["triton==3.1.0"], tag=tag)


@pytest.fixture
def cu124(tmp_path: Path) -> Iterator[Index]:
    a_torch(tmp_path / "cu124", "2.0.0+cu124")
    with serve_index(tmp_path / "cu124", name="cu124") as served:
        yield served


@pytest.fixture
def cu130(tmp_path: Path) -> Iterator[Index]:
    a_torch(tmp_path / "cu130", "2.1.0+cu130")
    with serve_index(tmp_path / "cu130", name="cu130") as served:
        yield served


@pytest.fixture
def table(cu124: Index, cu130: Index) -> Table:
    """Rows of two indexes that answer, and of no other."""
    whole = read_table(SMALL, path="small.yaml")
    indexes = {
        name: dataclasses.replace(whole.indexes[name], url=url)
        for name, url in (("cu124", cu124.url), ("cu130", cu130.url))
    }
    return dataclasses.replace(whole, indexes=indexes)


def update(table: Table, before: Contents, today: str = "2026-11-27") -> Update:
    site = Site(patience_seconds=1.0)
    return read_indexes(table, before, site=site, addresses={}, today=today, watch=Quiet())


def test_a_first_reading_is_all_new_and_a_second_finds_nothing(
    table: Table, cu124: Index, cu130: Index, tmp_path: Path
) -> None:
    first = update(table, Contents())
    assert sorted(first.changes) == sorted(
        (
            f"{cu124.url}: torch 2.0.0+cu124: new (python 3.11 to 3.11, x86_64)",
            f"{cu130.url}: torch 2.1.0+cu130: new (python 3.11 to 3.11, x86_64)",
        )
    )
    assert write_contents(first, tmp_path)
    again = update(table, first.contents)
    assert (again.contents, again.changes, again.unread) == (first.contents, (), ())
    assert not write_contents(again, tmp_path)
    assert update_text(again) == "".join(
        f"contradicts a row: {one}\n" for one in first.contradictions
    )
    refuse_stale(again, tmp_path)


def test_a_release_a_yanked_one_and_one_that_vanished_are_each_a_line(
    table: Table, cu124: Index
) -> None:
    first = update(table, Contents())
    a_torch(cu124.folder, "2.1.0+cu124")
    next(cu124.folder.glob("torch-2.0.0*")).unlink()
    then = update(table, first.contents, today="2026-12-04")
    assert then.changes == (
        f"{cu124.url}: torch 2.0.0+cu124: gone (was there from 2026-11-27)",
        f"{cu124.url}: torch 2.1.0+cu124: new (python 3.11 to 3.11, x86_64)",
    )
    assert f"torch 2.0.0 on cu124: the row lists it, {cu124.url} has none" in then.contradictions


@pytest.mark.parametrize(
    "fault",
    [Fault(status=500), Fault(login=True), Fault(hang_seconds=9), Fault(status=403)],
    ids=["error", "login page", "silent", "refused"],
)
def test_an_index_that_fails_costs_one_sentence_and_nothing_of_the_table(
    table: Table, cu124: Index, cu130: Index, fault: Fault
) -> None:
    first = update(table, Contents())
    a_torch(cu130.folder, "2.2.0+cu130")
    cu124.fail("/torch/", fault)
    then = update(table, first.contents, today="2026-12-04")
    (unread,) = then.unread
    assert unread.startswith(f"{cu124.url}/torch/: ")
    assert then.contents.indexes[cu124.url] == first.contents.indexes[cu124.url]
    (change,) = then.changes
    assert change.startswith(f"{cu130.url}: torch 2.2.0+cu130: new")


def test_a_check_refuses_what_is_not_what_the_indexes_hold(table: Table, tmp_path: Path) -> None:
    found = update(table, Contents())
    with pytest.raises(StaleError, match=r"index-contents\.json: 2 changes since it was written"):
        refuse_stale(found, tmp_path)
    write_contents(found, tmp_path)
    refuse_stale(found, tmp_path)


def test_a_project_plans_by_its_own_contents_and_by_the_packages_without(
    table: Table, tmp_path: Path
) -> None:
    assert contents_path(tmp_path) == tmp_path / CONTENTS
    write_contents(update(table, Contents()), tmp_path)
    text = (tmp_path / CONTENTS).read_text("utf-8")
    assert compat_of(tmp_path).contents == read_contents(text, path=CONTENTS)
    assert isinstance(compat_of(tmp_path / "elsewhere"), Compat)


def test_this_repository_writes_the_packages_own_data() -> None:
    root = Path(__file__).parents[3]
    assert contents_path(root) == root / "src" / "warpfront" / "data" / CONTENTS


def test_what_changed_is_one_pull_request_on_a_branch_of_its_own(
    table: Table, tmp_path: Path
) -> None:
    found, forge = update(table, Contents()), ForgeInterface()
    with standing_in(forge, forge.github):
        api = forge_api(github_job(forge))
        assert propose_update(found, tmp_path, api) == "proposed: pull/1"
        assert forge.refs[f"heads/{BRANCH}"] == "c0ffee"
        forge.refs["heads/main"] = "badcafe"
        assert propose_update(found, tmp_path, api) == "proposed: pull/1"
    assert forge.refs[f"heads/{BRANCH}"] == "badcafe"
    (pull,) = forge.pulls
    assert "torch 2.0.0+cu124: new" in pull["body"]
    assert read_contents(forge.files[CONTENTS], path=CONTENTS) == found.contents


def test_what_changed_is_one_merge_request_on_gitlab(table: Table, tmp_path: Path) -> None:
    found, forge = update(table, Contents()), ForgeInterface()
    with standing_in(forge, forge.gitlab):
        api = forge_api({**gitlab_job(forge), "API_TOKEN": "a-token-that-may-write"})
        assert propose_update(found, tmp_path, api) == "proposed: mr/1"
        forge.files[CONTENTS], forge.refs["heads/main"] = "older", "badcafe"
        assert propose_update(found, tmp_path, api) == "proposed: mr/1"
        forge.refuses = {"repository/commits": 403}
        with pytest.raises(InputError, match="HTTP 403"):
            propose_update(found, tmp_path, api)
    assert forge.refs[f"heads/{BRANCH}"] == "badcafe"
    (request,) = forge.pulls
    assert (request["source_branch"], request["target_branch"]) == (BRANCH, "main")
    assert "torch 2.0.0+cu124: new" in request["description"]
    assert read_contents(forge.written[CONTENTS], path=CONTENTS) == found.contents


def test_nothing_new_is_not_proposed_and_no_forge_is_an_error(table: Table, tmp_path: Path) -> None:
    found = update(table, Contents())
    with pytest.raises(InputError, match="a job of CI"):
        propose_update(found, tmp_path, None)
    write_contents(found, tmp_path)
    assert propose_update(found, tmp_path, None) == "nothing changed, nothing is proposed"
