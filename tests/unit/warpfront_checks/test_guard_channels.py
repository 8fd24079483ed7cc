"""Every channel is written, kept beside what a base has, and missed when it is gone."""

from __future__ import annotations

import configparser
import tomllib
from pathlib import Path

import pytest
from guarded import cpu_policy, findings, places_below, sealed_cpu

from warpfront_checks.guard.channels import (
    channel_files,
    channel_findings,
    environment_channels,
    pth_text,
)
from warpfront_checks.guard.places import Places
from warpfront_checks.guard.policy import GuardError
from warpfront_checks.guard.sealing import write_files


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return places_below(tmp_path)


def write_channels(places: Places) -> None:
    write_files(channel_files(cpu_policy(), places))


def found(places: Places, **environment: str) -> list[tuple[str, str]]:
    given = {**environment_channels(places), **environment}
    return channel_findings(cpu_policy(), places, given)


def test_all_channels_written_leave_nothing_to_find(places: Places) -> None:
    write_channels(places)
    assert found(places) == []


def test_pip_and_uv_read_what_was_written(places: Places) -> None:
    write_channels(places)
    pip = configparser.RawConfigParser()
    pip.read(places.pip_configuration)
    assert pip["global"]["constraint"].split() == [str(places.constraints)]
    uv = tomllib.loads(places.uv_configuration.read_text())
    assert "torch==2.13.0+cpu" in uv["constraint-dependencies"]
    assert "torch==2.13.0+cpu" in uv["build-constraint-dependencies"]


def test_writing_twice_gives_the_same_files(places: Places) -> None:
    places.uv_configuration.parent.mkdir()
    places.uv_configuration.write_text("offline = true\n\n[pip]\nstrict = true\n")
    places.pip_configuration.write_text("[global]\ntimeout = 5\n")
    write_channels(places)
    once = {path: path.read_text() for path in channel_files(cpu_policy(), places)}
    write_channels(places)
    assert {path: path.read_text() for path in once} == once


def test_a_relaxed_policy_replaces_the_block_for_uv(places: Places) -> None:
    write_channels(places)
    write_files(channel_files(cpu_policy().relax("torch", "on purpose"), places))
    uv = tomllib.loads(places.uv_configuration.read_text())
    assert not any(line.startswith("torch==") for line in uv["constraint-dependencies"])


def test_a_base_with_tables_in_its_uv_toml_keeps_them(places: Places) -> None:
    theirs = 'index-strategy = "first-index"\n\n[[index]]\nurl = "https://a.test"\n\n[pip]\nx = 1\n'
    places.uv_configuration.parent.mkdir()
    places.uv_configuration.write_text(theirs)
    write_channels(places)
    uv = tomllib.loads(places.uv_configuration.read_text())
    assert uv["index"] == [{"url": "https://a.test"}]
    assert uv["pip"] == {"x": 1}
    assert uv["index-strategy"] == "first-index"
    assert "constraint-dependencies" in uv


@pytest.mark.parametrize("key", ["constraint-dependencies", '"build-constraint-dependencies"'])
def test_a_base_whose_uv_toml_sets_the_same_key_is_refused(places: Places, key: str) -> None:
    places.uv_configuration.parent.mkdir()
    places.uv_configuration.write_text(f'{key} = ["numpy<2"]\n')
    with pytest.raises(GuardError, match=r"uv\.toml already sets .*constraint-dependencies"):
        channel_files(cpu_policy(), places)


@pytest.mark.parametrize("name", ["pip.conf", "uv/uv.toml"])
def test_a_file_that_cannot_be_read_is_not_written_over(places: Places, name: str) -> None:
    path = places.etc / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(GuardError, match=name):
        channel_files(cpu_policy(), places)
    assert path.read_bytes() == b"# caf\xe9\n"


def test_a_broken_pip_conf_is_refused_by_name(places: Places) -> None:
    places.pip_configuration.write_text("nonsense\n")
    with pytest.raises(GuardError, match=r"pip\.conf: pip cannot read it"):
        channel_files(cpu_policy(), places)


@pytest.mark.parametrize("part", ["constraints", "overrides", "pth"])
def test_a_channel_that_was_removed_is_found(places: Places, part: str) -> None:
    write_channels(places)
    path: Path = getattr(places, part)
    path.unlink()
    assert found(places) == [(str(path), "missing")]


@pytest.mark.parametrize("part", ["constraints", "overrides", "pth"])
def test_a_channel_that_was_changed_is_found(places: Places, part: str) -> None:
    write_channels(places)
    path: Path = getattr(places, part)
    path.write_text(path.read_text().replace("torch", "trch"))
    assert found(places) == [(str(path), "not as the policy demands")]


@pytest.mark.parametrize("text", ["", "[global]\nconstraint = /other.txt\n", "[global\n"])
def test_a_pip_conf_without_our_constraint_is_found(places: Places, text: str) -> None:
    write_channels(places)
    places.pip_configuration.write_text(text)
    assert [subject for subject, _ in found(places)] == [str(places.pip_configuration)]


def test_a_list_for_pip_install_that_hides_the_global_one_is_found(places: Places) -> None:
    write_channels(places)
    with places.pip_configuration.open("a") as file:
        file.write("[install]\nconstraint = /evil.txt\n")
    [(_, text)] = found(places)
    assert text == f"[install] constraint lacks {places.constraints}"


def test_a_uv_toml_without_our_constraints_is_found(places: Places) -> None:
    write_channels(places)
    text = places.uv_configuration.read_text()
    places.uv_configuration.write_text(text.replace("torch==2.13.0+cpu", "torch==2.12.0+cpu"))
    assert [subject for subject, _ in found(places)] == [str(places.uv_configuration)]


@pytest.mark.parametrize(
    "name", ["PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_BUILD_CONSTRAINT", "PYTHONNOUSERSITE"]
)
def test_a_variable_that_says_something_else_is_found(places: Places, name: str) -> None:
    write_channels(places)
    assert [subject for subject, _ in found(places, **{name: "/evil.txt"})] == [name]


def test_a_variable_that_names_more_files_is_fine(places: Places) -> None:
    write_channels(places)
    ours = f"{places.constraints} {places.needs}"
    assert found(places, PIP_CONSTRAINT=f"/etc/pip/constraint.txt {ours}") == []
    assert found(places, PIP_CONSTRAINT=str(places.constraints)) != []


def test_pip_builds_are_not_constrained_by_the_environment() -> None:
    """pip 25.3 and newer refuse --no-build-isolation beside PIP_BUILD_CONSTRAINT."""
    assert "PIP_BUILD_CONSTRAINT" not in environment_channels(Places(site_packages=Path()))


def test_the_start_up_file_is_one_import_and_adds_nothing_to_the_path(places: Places) -> None:
    """`site` takes a line for a program only if it begins so. A folder on the path would come after
    site-packages, and another package by the guard's name before it.
    """
    (start,) = pth_text(places).splitlines()
    assert start.startswith("import ")


def test_verify_names_each_channel(tmp_path: Path) -> None:
    places = sealed_cpu(tmp_path)
    places.uv_configuration.unlink()
    places.pip_configuration.unlink()
    assert [line.split(": ")[:2] for line in findings(places)] == [
        ["channel", str(places.pip_configuration)],
        ["channel", str(places.uv_configuration)],
    ]
