"""The engine's parts that need no engine."""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import docker.errors
import pytest
import requests

from warpfront.errors import EngineError
from warpfront.images.engine import docker as room
from warpfront.images.engine import embedded
from warpfront.images.engine import protocol as rooms
from warpfront.images.engine.docker import LONGEST_LINE, lines_of
from warpfront.images.engine.protocol import RunRequest, connect
from warpfront.system import process

DEBIAN = {"PRETTY_NAME": "Debian GNU/Linux 12", "ID": "debian", "VERSION_ID": "12"}


def test_lines_cut_anywhere_come_out_whole() -> None:
    data = "één\r\ntwee\n\ndrie".encode()
    assert [*lines_of(bytes([byte]) for byte in data)] == ["één", "twee", "", "drie"]


def test_a_line_is_there_before_the_stream_ends() -> None:
    chunks = iter([b"a\nb", b""])
    assert next(lines_of(chunks)) == "a"
    assert next(chunks) == b""


def test_a_stream_that_ends_with_a_line_has_no_line_after_it() -> None:
    assert [*lines_of([b"a\n"])] == ["a"]
    assert [*lines_of([])] == []


def test_undecodable_bytes_become_replacement_characters() -> None:
    assert [*lines_of([b"a\xff\xfeb\n"])] == ["a\N{REPLACEMENT CHARACTER}\ufffdb"]
    assert [*lines_of([b"\xe2\x82"])] == ["\N{REPLACEMENT CHARACTER}"]


def test_a_line_without_end_is_kept_short_and_counted() -> None:
    (line,) = lines_of([b"x" * 1000] * 100 + [b"\n"])
    assert line == "x" * LONGEST_LINE + f"... ({100_000 - LONGEST_LINE} more characters)"


@pytest.mark.parametrize(
    ("said", "machine"),
    [("x86_64", "x86_64"), ("aarch64", "aarch64"), ("amd64", "x86_64"), ("arm64", "aarch64")],
)
def test_a_machine_has_one_name_whatever_the_engine_calls_it(said: str, machine: str) -> None:
    class Client:
        def info(self) -> dict[str, str]:
            return {"Architecture": said}

        def close(self) -> None: ...

    client: Any = Client()
    again: Any = functools.partial(Client)
    engine = room.DockerEngine(
        client, "unix:///x.sock", build_environment={}, cache=Path(), again=again
    )
    assert engine.machine == machine


@pytest.mark.parametrize(
    ("own", "elsewhere", "linked"), [(True, False, 1), (False, False, 0), (True, True, 0)]
)
def test_only_an_engine_of_our_own_that_builds_itself_is_given_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, own: bool, elsewhere: bool, linked: int
) -> None:
    class Client:
        def info(self) -> dict[str, str]:
            return {"DockerRootDir": str(tmp_path / "data")}

        def close(self) -> None: ...

    given: list[tuple[object, ...]] = []
    monkeypatch.setattr(room, "link_blobs", lambda *files, mounted: given.append((*files, mounted)))
    client: Any = Client()
    again: Any = functools.partial(Client)
    host = embedded.EnginePlace(state=tmp_path).host if own else "unix:///var/run/docker.sock"
    engine = room.DockerEngine(client, host, build_environment={}, cache=Path(), again=again)
    monkeypatch.setitem(vars(engine), "builds_elsewhere", elsewhere)
    engine.adopt([tmp_path / "abc"])
    data = tmp_path / "data"
    folder = data / "containerd" / "daemon" / room._CONTENT / "blobs" / "sha256"
    assert given == [([tmp_path / "abc"], folder, data)] * linked


@pytest.mark.parametrize(
    ("version", "storage", "named"),
    [
        ("20.10.24+dfsg1", "overlay2", False),
        ("23.0.0", "overlay2", True),
        ("28.4.0-rd", "overlay2", True),
        ("dev", "overlay2", False),
        ("", "overlay2", False),
        ("dev", "io.containerd.snapshotter.v1", True),  # younger than named contexts
    ],
)
def test_an_engine_has_named_contexts_by_its_version_or_its_store(
    version: str, storage: str, *, named: bool
) -> None:
    class Client:
        def info(self) -> dict[str, Any]:
            return {"ServerVersion": version, "DriverStatus": [["driver-type", storage]]}

        def close(self) -> None: ...

    client: Any = Client()
    again: Any = functools.partial(Client)
    engine = room.DockerEngine(client, "tcp://x", build_environment={}, cache=Path(), again=again)
    assert engine.features().named_contexts is named


PLAIN = ["name=seccomp,profile=builtin", "name=cgroupns"]
ME = f"{os.getuid()}:{os.getgid()}"


@pytest.mark.parametrize(
    ("options", "asked", "user", "namespace"),
    [
        (PLAIN, ME, ME, None),
        ([*PLAIN, "name=rootless"], ME, "0:0", None),
        ([*PLAIN, "name=rootless"], "12345:6", "12345:6", None),
        ([*PLAIN, "name=userns"], ME, ME, "host"),
        ([*PLAIN, "name=userns"], "", None, None),
        (None, ME, ME, None),
    ],
)
def test_a_container_writes_as_the_host_s_user_whatever_the_engine_calls_it(
    options: list[str] | None, asked: str, user: str | None, namespace: str | None
) -> None:
    made: dict[str, Any] = {}

    class Api:
        def create_host_config(self, **settings: Any) -> dict[str, Any]:
            return settings

        def create_container(self, *_: Any, **settings: Any) -> None:
            made.update(settings)
            raise docker.errors.DockerException("enough was seen")

        def remove_container(self, *_: Any, **__: Any) -> None: ...

    class Client:
        api = Api()

        def info(self) -> dict[str, Any]:
            return {"SecurityOptions": options}

        def close(self) -> None: ...

    client: Any = Client()
    again: Any = functools.partial(Client)
    engine = room.DockerEngine(
        client, "unix:///x.sock", build_environment={}, cache=Path(), again=again
    )
    request = RunRequest(image="x", command=("true",), time_limit_seconds=1, user=asked)
    with pytest.raises(EngineError, match="enough was seen"):
        engine.run(request, on_line=print)
    assert made["user"] == user
    assert made["host_config"]["userns_mode"] == namespace
    assert made["host_config"]["cap_drop"] == ["ALL"]


def test_an_image_that_is_being_removed_is_not_listed_without_its_labels() -> None:
    class Api:
        def images(self, **_: Any) -> list[dict[str, Any]]:
            return [
                {"Id": "sha256:a", "Size": 1, "RepoTags": None, "Labels": None},
                {"Id": "sha256:b", "Size": 1, "RepoTags": ["b:1"], "Labels": {"cell": "c"}},
            ]

    class Client:
        api = Api()

        def close(self) -> None: ...

    client: Any = Client()
    again: Any = functools.partial(Client)
    engine = room.DockerEngine(
        client, "unix:///x.sock", build_environment={}, cache=Path(), again=again
    )
    assert [one.id for one in engine.images("cell")] == ["sha256:b"]
    assert [one.id for one in engine.images("cell=c")] == ["sha256:b"]


def test_a_list_in_which_an_image_vanished_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "_BETWEEN_LISTINGS_SECONDS", 0.0)
    row = {"Id": "sha256:b", "Size": 1, "RepoTags": ["b:1"], "Labels": {"cell": "c"}}

    class Api:
        failing = 3

        def images(self, **_: Any) -> list[dict[str, Any]]:
            self.failing -= 1
            if self.failing >= 0:
                raise docker.errors.NotFound("content digest sha256:8c: not found")
            return [row]

    class Client:
        api = Api()

        def close(self) -> None: ...

    client: Any = Client()
    again: Any = functools.partial(Client)
    engine = room.DockerEngine(
        client, "unix:///x.sock", build_environment={}, cache=Path(), again=again
    )
    assert [one.id for one in engine.images("cell")] == ["sha256:b"]
    Client.api.failing = 99
    with pytest.raises(EngineError, match="content digest"):
        engine.images("cell")


def myself() -> embedded.ProcessIdentity:
    found = embedded.identity(os.getpid())
    assert found is not None
    return found


def test_a_living_process_is_not_gone() -> None:
    assert not myself().is_gone()
    assert embedded.read_identity(asdict(myself())) == myself()


def test_a_pid_given_to_another_process_is_gone() -> None:
    assert replace(myself(), started="1").is_gone()


def test_a_pid_that_no_process_has_is_gone() -> None:
    assert replace(myself(), pid="4194999").is_gone()


def test_an_earlier_boot_of_this_host_is_gone_and_another_host_is_not_judged() -> None:
    earlier = replace(myself(), boot="00000000-0000-0000-0000-000000000000")
    assert earlier.is_gone()
    assert not replace(earlier, host="elsewhere").is_gone()


def test_another_pid_namespace_is_not_judged() -> None:
    assert not replace(myself(), namespace="pid:[1]", pid="4194999").is_gone()


def test_labels_that_lack_a_part_name_no_process() -> None:
    assert embedded.read_identity({"pid": "1", "started": "2"}) is None


def test_every_distribution_has_both_sets() -> None:
    for key in ("debian-12", "debian-13", "ubuntu-24.04"):
        name, _, version = key.partition("-")
        row = embedded.read_distribution({"ID": name, "VERSION_ID": version})
        unpacked = {package for suite in row.engine for package in suite.packages}
        assert {"docker.io", "docker-buildx", "containerd", "runc", "tini", "nftables"} <= unpacked
        assert any("mmdebstrap" in suite.packages for suite in row.bootstrap)


def test_debian_12_keeps_its_own_runc() -> None:
    row = embedded.read_distribution(DEBIAN)
    assert [suite.suite for suite in row.engine if "runc" in suite.packages] == ["bookworm"]


def test_an_unknown_distribution_is_refused_with_those_there_are() -> None:
    with pytest.raises(EngineError, match="fedora-41") as caught:
        embedded.read_distribution({"ID": "fedora", "VERSION_ID": "41"})
    assert "debian-12" in caught.value.hint


def test_only_a_moving_suite_may_have_an_old_release_and_every_source_is_signed() -> None:
    row = embedded.read_distribution(DEBIAN)
    sid, bookworm = embedded.sources(row, row.engine, "http://mirror.test/debian").splitlines()
    assert sid == (
        "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg check-valid-until=no] "
        "http://mirror.test/debian sid main"
    )
    assert "signed-by=" in bookworm
    assert "check-valid-until" not in bookworm


def test_the_mirror_is_the_one_that_apt_uses_for_the_suite() -> None:
    listed = (
        "'http://sec.test/debian-security/dists/bookworm-security/InRelease' sec_InRelease 0 \n"
        "'http://mirror.test/debian/dists/bookworm/InRelease' mirror_InRelease 0 \n"
    )
    assert embedded.read_mirror(listed, "bookworm") == "http://mirror.test/debian"
    assert embedded.read_mirror(listed, "bookworm-security") == "http://sec.test/debian-security"
    assert embedded.read_mirror(listed, "trixie") is None


def test_the_engine_lives_below_the_cache_folder() -> None:
    cache, state = embedded.folders({"HOME": "/home/someone"})
    assert (str(cache), state) == ("/home/someone/.cache/warpfront", cache / "engine")
    assert embedded.folders({"HOME": "/h", "XDG_CACHE_HOME": "/c"})[0] == Path("/c/warpfront")


def test_a_socket_and_a_bridge_fit_the_kernels_limits_however_deep_the_state() -> None:
    place = embedded.EnginePlace(state=Path("/" + "deep/" * 60))
    assert len(str(place.socket)) < 108
    assert len(place.bridge) < 16
    assert place.bridge != embedded.EnginePlace(state=Path("/other")).bridge


def test_two_folders_of_one_path_have_bridges_and_tables_of_their_own(tmp_path: Path) -> None:
    """As two containers have that share the host's network: neither ends the other's."""
    place = embedded.EnginePlace(state=tmp_path / "engine")
    names = set()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        place.state.symlink_to(tmp_path / folder)
        names |= {place.bridge, place.table}
        place.state.unlink()
    assert len(names) == 4


def test_the_status_of_an_engine_that_never_was_is_stopped(tmp_path: Path) -> None:
    assert embedded.status(tmp_path, tmp_path / "engine").state == "stopped"
    assert not list(tmp_path.iterdir())


def test_an_engine_whose_record_is_gone_is_not_called_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_RUNTIME", tmp_path / "run")
    place = embedded.EnginePlace(state=tmp_path / "engine")
    assert embedded.status(tmp_path, place.state).state == "stopped"
    place.runtime.mkdir(parents=True)
    assert embedded.status(tmp_path, place.state).state == "stale"


def test_half_a_record_is_a_stale_engine_not_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text('{"process": {"pid"')
    assert embedded.status(tmp_path, tmp_path).state == "stale"


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("12", "https://docs.docker.com/engine/install/"),
        ("13", "`apt install docker.io docker-buildx`, or https://docs.docker.com/engine/install/"),
    ],
)
def test_the_distributions_own_docker_is_advised_where_it_can_build(
    version: str, advice: str
) -> None:
    row = embedded.read_distribution({"ID": "debian", "VERSION_ID": version})
    assert row.docker_instead == advice


def test_without_root_the_hint_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineError, match="needs root") as caught:
        embedded.start(tmp_path, tmp_path / "engine", print)
    assert "docs.docker.com/engine/install" in caught.value.hint
    assert "rootless" in caught.value.hint
    assert not list(tmp_path.iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        yield server


def test_a_missing_socket_is_named(path: Path) -> None:
    with pytest.raises(EngineError, match="No such file") as caught:
        connect({"DOCKER_HOST": f"unix://{path}"})
    assert str(path) in caught.value.message
    assert "warpfront engine start" in caught.value.hint


@pytest.mark.usefixtures("listening")
def test_a_socket_that_nobody_serves_is_refused(path: Path) -> None:
    with pytest.raises(EngineError, match="Connection refused"):
        connect({"DOCKER_HOST": f"unix://{path}"})


def test_an_engine_that_never_answers_is_given_up(
    path: Path, listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "_CONNECT_SECONDS", 0.2)
    listening.listen()
    with pytest.raises(EngineError, match="does not answer"):
        connect({"DOCKER_HOST": f"unix://{path}"})


def test_a_socket_that_may_not_be_opened_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(EngineError, match="permission denied") as caught:
        connect({"DOCKER_HOST": "unix:///somewhere"})
    assert "group" in caught.value.hint


def test_engines_that_begin_at_once_get_a_subnet_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subnet is seen to be taken once its bridge stands, which takes a moment."""
    taken: list[str] = []
    forwarding = tmp_path / "ip_forward"
    forwarding.write_text("1")

    def made(_place: object, _tree: object) -> None:
        found = next(one for one in embedded._SUBNETS if one not in taken)
        time.sleep(0.05)
        taken.append(found)

    for name, fake in {
        "_RUNTIME": tmp_path / "run",
        "_make_bridge": made,
        "_FORWARDING": forwarding,
        "_await_daemon": lambda _place: {},
    }.items():
        monkeypatch.setattr(embedded, name, fake)
    monkeypatch.setattr(process, "start_daemon", lambda *_: None)
    tree = embedded.PackageTree(root=tmp_path, perl="")
    (tmp_path / "bin").mkdir()
    for program in ("dockerd", "docker-proxy", "tini-static"):
        (tmp_path / "bin" / program).write_text("")
    places = [embedded.EnginePlace(state=tmp_path / str(number)) for number in range(3)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda place: embedded._begin(place, tree, print), places))
    assert sorted(taken) == sorted(embedded._SUBNETS[:3])
    assert len(set(embedded._SUBNETS)) == 16


def test_no_engine_at_all_hints_at_the_embedded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "DEFAULT_HOST", f"unix://{tmp_path}/none")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    for find in (connect, room.connect):  # without the SDK, and the SDK's way
        with pytest.raises(EngineError, match="no container engine") as caught:
            find({"XDG_CACHE_HOME": str(tmp_path), "DOCKER_CONFIG": str(tmp_path)})
        assert caught.value.hint == "warpfront engine start"


@pytest.mark.parametrize("names", ["DOCKER_HOST", "DOCKER_CONTEXT", "config.json", "socket"])
def test_whatever_names_an_engine_is_left_to_the_sdk(
    names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[str, str]] = []
    monkeypatch.setattr(rooms, "DEFAULT_HOST", f"unix://{tmp_path}/socket")
    monkeypatch.setattr(room, "connect", asked.append)
    environment = {"XDG_CACHE_HOME": str(tmp_path), "DOCKER_CONFIG": str(tmp_path)}
    if names.startswith("DOCKER"):
        environment[names] = "unix:///somewhere"
    else:
        (tmp_path / names).touch()
    connect(environment)
    assert asked == [environment]


def test_a_cause_is_found_however_deep_the_sdk_buried_it() -> None:
    buried = requests.ConnectionError(("aborted", PermissionError(13, "Permission denied")))
    buried.__cause__ = PermissionError(13, "Permission denied")
    outer = docker.errors.DockerException("Error while fetching server API version")
    outer.__context__ = buried
    assert "permission denied" in room._engine_error("unix:///x", outer).message


def test_a_full_disk_has_its_own_hint() -> None:
    error = docker.errors.APIError("500", explanation="write /x: no space left on device")
    assert "free some space" in room._engine_error("unix:///x", error).hint


def test_device_nodes_are_character_devices_with_their_groups(tmp_path: Path) -> None:
    (tmp_path / "kfd").write_text("a file is no device")
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    assert room.device_nodes(tmp_path) == {f"{tmp_path}/nvidia0": Path("/dev/null").stat().st_gid}
