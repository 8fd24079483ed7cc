"""Where a base comes from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeEngine

from warpfront.errors import BlockedError
from warpfront.images.engine import bases, embedded
from warpfront.images.engine.bases import (
    RECIPE_LABEL,
    SOURCE_LABEL,
    apt_sources,
    find_base,
    in_memory,
    recipe_digest,
    resolve_base,
)
from warpfront.images.engine.embedded import PackageTree
from warpfront.matrix.cell import BaseSource
from warpfront.matrix.language import Base, Bootstrap
from warpfront.system import process
from warpfront.system.process import Command, Completed

RECIPE = Bootstrap(suite="bookworm", include=("python3", "ca-certificates"))
BASE = Base(
    name="python311",
    reference="registry.test/library/python:3.11",
    digest="sha256:" + "a" * 64,
    python="3.11",
    interpreter="/usr/bin/python3.11",
    glibc="2.36",
    bootstrap=RECIPE,
)


def reached(_reference: str) -> str | None:
    return None


def out_of_reach(_reference: str) -> str | None:
    return "registry.test: Name or service not known"


def never_asked(reference: str) -> str | None:
    raise AssertionError(f"{reference} was probed")


def test_a_base_in_the_engine_needs_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "registry_reachable", never_asked)
    engine = FakeEngine()
    engine.build(BASE.pinned, {})
    found = find_base(BASE, engine)
    assert found is not None
    assert (found.source, found.identity) == (BaseSource.REGISTRY, BASE.digest)


def test_a_reachable_registry_wins_over_the_bootstrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "registry_reachable", reached)
    found = resolve_base(BASE, FakeEngine(), cache=tmp_path, on_line=print)
    assert (found.source, found.reference) == (BaseSource.REGISTRY, BASE.pinned)


def test_a_base_without_bootstrap_is_blocked_with_registry_and_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bases, "registry_reachable", out_of_reach)
    base = replace(BASE, bootstrap=None)
    with pytest.raises(BlockedError, match=r"registry\.test: Name or service not known") as caught:
        find_base(base, FakeEngine())
    assert "bootstrap" in caught.value.hint


def test_a_bootstrap_not_yet_made_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bases, "registry_reachable", out_of_reach)
    assert find_base(BASE, FakeEngine()) is None


def test_a_base_that_no_registry_has_asks_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "registry_reachable", never_asked)
    base, engine = replace(BASE, reference="localhost/warpfront/base:sid", digest=""), FakeEngine()
    engine.build(base.pinned, {})  # a name that anybody can give is no proof
    assert find_base(base, engine) is None
    rootfs = tmp_path / "bases" / f"{recipe_digest(RECIPE)}.tar"
    rootfs.parent.mkdir()
    rootfs.write_bytes(b"root file system")
    found = resolve_base(base, engine, cache=tmp_path, on_line=print)
    assert found.source is BaseSource.BOOTSTRAP


def test_a_bootstrap_is_imported_once_and_labelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "registry_reachable", out_of_reach)
    engine = FakeEngine()
    rootfs = tmp_path / "bases" / f"{recipe_digest(RECIPE)}.tar"
    rootfs.parent.mkdir()
    rootfs.write_bytes(b"a root file system")
    said: list[str] = []

    def resolve() -> object:
        return resolve_base(BASE, engine, cache=tmp_path, on_line=said.append)

    first = resolve()
    assert resolve() == first
    assert len(said) == 1
    (stored,) = engine.images(f"{SOURCE_LABEL}=bootstrap")
    assert stored.labels[RECIPE_LABEL] == recipe_digest(RECIPE)
    found = find_base(BASE, engine)
    assert found == first
    assert found is not None
    assert (found.source, found.identity) == (BaseSource.BOOTSTRAP, stored.id)
    assert found.reference.startswith("localhost/warpfront/base:python311-")


def test_another_recipe_is_another_image() -> None:
    assert recipe_digest(RECIPE) != recipe_digest(replace(RECIPE, suite="trixie"))
    assert recipe_digest(RECIPE) != recipe_digest(replace(RECIPE, include=("python3",)))
    assert recipe_digest(RECIPE) != recipe_digest(replace(RECIPE, headers=("librocblas-dev",)))
    assert recipe_digest(RECIPE) == recipe_digest(replace(RECIPE, include=RECIPE.include[::-1]))


def test_sources_name_the_suite_its_updates_and_its_security_fixes() -> None:
    lines = apt_sources(RECIPE, "http://m.test/debian", "http://s.test/sec").splitlines()
    assert lines[0] == "deb http://m.test/debian bookworm main"
    assert lines[1:] == [
        "deb http://m.test/debian bookworm-updates main",
        "deb http://s.test/sec bookworm-security main",
    ]


def test_a_suite_without_updates_whose_release_may_be_old_says_so_in_its_sources() -> None:
    sid = Bootstrap(suite="sid", include=(), updates=False, release_may_be_old=True)
    text = apt_sources(sid, "http://m.test/debian", "http://s.test/sec")
    assert text == "deb [check-valid-until=no] http://m.test/debian sid main\n"
    assert recipe_digest(sid) != recipe_digest(replace(sid, release_may_be_old=False))


COMMAND = Command(argv=("mmdebstrap", "sid"), environment={"LC_ALL": "C"})


@pytest.mark.parametrize(
    ("available", "temporary", "refused", "mounts"),
    [
        (16 * 2**30, "", 0, True),
        (11 * 2**30, "", 0, False),
        (16 * 2**30, "/var/tmp", 0, False),
        (16 * 2**30, "", 1, False),
    ],
)
def test_a_bootstrap_is_in_memory_where_there_is_room_and_a_right_to_mount(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    available: int,
    temporary: str,
    refused: int,
    *,
    mounts: bool,
) -> None:
    def run(command: Command) -> Completed:
        assert command.argv[-1] == "true"
        return Completed(command=command, returncode=refused, stdout="", stderr="")

    monkeypatch.setattr(bases, "_available_bytes", lambda: available)
    monkeypatch.setattr(process, "run", run)
    monkeypatch.delenv("TMPDIR", raising=False)
    if temporary:
        monkeypatch.setenv("TMPDIR", temporary)
    found = in_memory(COMMAND, tmp_path)
    assert (found != COMMAND) is mounts
    assert found.argv[-2:] == COMMAND.argv
    assert found.environment == COMMAND.environment
    assert not mounts or str(8 * 2**30) in found.argv


@pytest.mark.process
def test_what_was_in_memory_is_gone_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bases, "_available_bytes", lambda: 16 * 2**30)
    monkeypatch.delenv("TMPDIR", raising=False)
    memory = tmp_path / "memory"
    memory.mkdir()
    script = 'echo made > "$TMPDIR/file"; cat "$TMPDIR/file"; echo out > "$1/result"'
    command = in_memory(Command(argv=("sh", "-c", script, "sh", str(tmp_path))), memory)
    if command.argv[0] != "unshare":
        pytest.skip("this user may not mount")
    assert process.run(command).stdout == "made\n"
    assert (tmp_path / "result").read_text() == "out\n"
    assert list(memory.iterdir()) == []


def test_headers_are_installed_without_what_they_depend_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded, "machine_mirror", lambda _suite, public: public)
    for program in ("perl", "mmdebstrap"):
        (tmp_path / "usr" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr" / "bin" / program).touch()
    tree = PackageTree(root=tmp_path, perl="5.36")
    recipe = replace(RECIPE, headers=("librocblas-dev/experimental",))
    (hook,) = (
        word
        for word in bases._mmdebstrap(recipe, tree, tmp_path / "rootfs.tar").argv
        if "librocblas" in word
    )
    assert hook.startswith("--customize-hook=")
    assert "apt-get download librocblas-dev/experimental" in hook
    assert "--force-depends" in hook
    assert "path-exclude=/usr/lib/*" in hook
