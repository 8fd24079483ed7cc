"""What an engine promises: the same suite against the fake and a real one, then what only a real
one can show: limits, signals, death. The real one is a private embedded engine, so that nothing
else is touched.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import io
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
import requests
from fakes import FakeEngine

from warpfront.commands.adopting import identities
from warpfront.errors import EngineError
from warpfront.images.engine import bases, embedded
from warpfront.images.engine.protocol import RUN_LABEL, Bind, Engine, RunRequest, connect
from warpfront.matrix.cell import DeviceAccess
from warpfront.matrix.language import Bootstrap
from warpfront.system import process

IMAGE = "localhost/warpfront/contract:image"
LABEL = "dev.warpfront.contract"
# The time of an engine on a busy disk for one removal; the client itself gives it ten minutes.
ANSWER_SECONDS = 170.0
# As matrix.yaml has it for debian-12, so that all tests bootstrap one.
PYTHON = Bootstrap(suite="bookworm", include=("ca-certificates", "python3", "python3-venv"))

pytestmark = [
    pytest.mark.timeout(300),
    # The SDK leaves a socket that could not connect to a dead daemon to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def request(*command: str, **changes: Any) -> RunRequest:
    plain = RunRequest(image=IMAGE, command=command, time_limit_seconds=60.0)
    return replace(plain, **changes)


def wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never became so"
        time.sleep(0.05)


def small_tar(path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo("etc/small")
        entry.size = 2
        tar.addfile(entry, io.BytesIO(b"ok"))
    return path


class Private:
    """An embedded engine of this test run alone."""

    def __init__(self, state: Path) -> None:
        self.cache, _ = embedded.folders(process.environment())
        self.place = embedded.EnginePlace(state=state)
        self.start()
        self.client = docker.DockerClient(self.place.host)

    def start(self) -> embedded.Status:
        return embedded.start(self.cache, self.place.state, print)

    def stop(self) -> embedded.Status:
        return embedded.stop(self.cache, self.place.state, print)

    def status(self) -> embedded.Status:
        return embedded.status(self.cache, self.place.state)

    def connect(self) -> Engine:
        return connect({**process.environment(), "DOCKER_HOST": self.place.host})

    def runs(self) -> list[str]:
        rows = self.client.api.containers(all=True, filters={"label": RUN_LABEL})
        return [row["Names"][0] for row in rows if row["State"] == "running"]

    def leftovers(self) -> int:
        return len(self.client.api.containers(all=True, filters={"label": RUN_LABEL}))

    def kill_daemon(self, number: signal.Signals) -> None:
        pid = self.status().pid
        assert pid is not None
        os.kill(pid, number)


@pytest.fixture(scope="module")
def private() -> Iterator[Private]:
    with state_folder() as state:
        found = Private(state)
        yield from filled(found)


@contextlib.contextmanager
def state_folder() -> Iterator[Path]:
    """For an engine's gigabytes: gone with the test, where pytest would keep its folders."""
    if os.geteuid():
        pytest.skip("the embedded engine needs root")
    with tempfile.TemporaryDirectory(prefix="warpfront-test-") as folder:
        yield Path(folder)


def filled(found: Private) -> Iterator[Private]:
    try:
        tar = bases.bootstrap_rootfs(PYTHON, found.cache, print)
        found.connect().import_rootfs(tar, IMAGE, {LABEL: "image"}, {})
        yield found
    finally:
        found.client.close()
        found.stop()
        gc.collect()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.docker)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    if request.param == "real":
        real: Private = request.getfixturevalue("private")
        return real.connect()
    fake = FakeEngine()
    fake.import_rootfs(small_tar(tmp_path / "base.tar"), IMAGE, {LABEL: "image"}, {})
    return fake


@pytest.fixture
def state() -> Iterator[Path]:
    with state_folder() as folder:
        yield folder


@pytest.fixture
def lines() -> list[str]:
    return []


def test_an_imported_image_is_found_by_reference_by_id_and_by_label(
    engine: Engine, tmp_path: Path
) -> None:
    labels = {LABEL: 'quo"te $HOME \\ back', "other": "b"}
    made = engine.import_rootfs(small_tar(tmp_path / "a.tar"), "localhost/x/a:1", labels, {})
    assert engine.image("localhost/x/a:1") == made
    assert engine.image(made.id) == made
    assert dict(made.labels) == labels
    assert [image.id for image in engine.images(f"{LABEL}={labels[LABEL]}")] == [made.id]
    assert made.id in {image.id for image in engine.images(LABEL)}
    assert made.size_bytes > 0
    engine.remove("localhost/x/a:1")


def test_images_of_one_substance_differ_in_their_labels_alone(
    engine: Engine, tmp_path: Path
) -> None:
    tar = small_tar(tmp_path / "a.tar")
    more = tmp_path / "more.tar"
    with tarfile.open(more, "w") as archive:
        archive.addfile(tarfile.TarInfo("etc/more"))
    names = ("localhost/x/s:1", "localhost/x/s:2", "localhost/x/s:3")
    rootfs = (tar, tar, more)
    found = [
        engine.import_rootfs(one, name, {"name": name}, {})
        for one, name in zip(rootfs, names, strict=True)
    ]
    first, again, other = (engine.image(one.id) for one in found)
    assert first and again and other  # noqa: PT018 - for who reads the types
    assert first.id != again.id
    assert first.substance == again.substance != ""
    assert other.substance != first.substance
    for name in names:
        engine.remove(name)


def test_an_image_leaves_as_a_layout_and_is_built_on_where_it_is(
    engine: Engine, tmp_path: Path
) -> None:
    made = engine.import_rootfs(small_tar(tmp_path / "a.tar"), "localhost/x/a:1", {}, {})
    digest = engine.export("localhost/x/a:1", tmp_path / "layout")
    index = json.loads((tmp_path / "layout" / "index.json").read_text())
    assert [one["digest"] for one in index["manifests"]] == [digest] == [made.id]
    with pytest.raises(EngineError):
        engine.export("localhost/x/never:1", tmp_path / "none")
    assert engine.builds_elsewhere is False
    engine.remove("localhost/x/a:1")


def test_images_go_to_another_engine_as_one_archive(engine: Engine, tmp_path: Path) -> None:
    """What the archive calls each of them is what this engine calls it."""
    names = ("localhost/x/a:1", "localhost/x/b:1")
    made = {
        name: engine.import_rootfs(small_tar(tmp_path / "a.tar"), name, {LABEL: name}, {})
        for name in names
    }
    archive = tmp_path / "images.tar.gz"
    engine.save(names, archive)
    known = identities(archive)
    for name, image in made.items():
        assert image.id in known[name]
        engine.remove(name)
        assert engine.image(image.id) is None
    engine.load(archive)
    for name, image in made.items():
        found = engine.image(image.id)
        assert found is not None
        assert found.labels[LABEL] == name
        engine.remove(name)
    with pytest.raises(EngineError):
        engine.save(["localhost/x/never:1"], tmp_path / "none")


def test_a_missing_image_is_none_and_its_removal_no_error(engine: Engine) -> None:
    assert engine.image("localhost/x/nowhere:1") is None
    assert engine.images("dev.warpfront.nowhere") == ()
    engine.remove("localhost/x/nowhere:1")


def test_a_tag_moves_and_the_image_goes_with_its_last_reference(
    engine: Engine, tmp_path: Path
) -> None:
    made = engine.import_rootfs(small_tar(tmp_path / "a.tar"), "localhost/x/b:1", {"a": "b"}, {})
    engine.tag(made.id, "localhost/x/b:2")
    found = engine.image("localhost/x/b:2")
    assert found is not None
    assert found.id == made.id
    engine.remove("localhost/x/b:1")
    assert engine.image("localhost/x/b:1") is None
    assert engine.image("localhost/x/b:2") is not None
    engine.remove("localhost/x/b:2")
    assert engine.image(made.id) is None


def test_a_run_hands_over_lines_and_the_exit_code(engine: Engine, lines: list[str]) -> None:
    result = engine.run(request("echo", "hello", "there"), lines.append)
    assert (lines, result.exit_code) == (["hello there"], 0)
    assert engine.run(request("false"), lines.append).exit_code == 1


def test_a_run_gets_its_environment(engine: Engine, lines: list[str]) -> None:
    devices = DeviceAccess(environment={"B": "2"})
    engine.run(request("printenv", "A", "B", environment={"A": "1"}, devices=devices), lines.append)
    assert lines == ["1", "2"]


def test_a_run_beyond_its_time_limit_is_timed_out_and_nothing_else(
    engine: Engine, lines: list[str]
) -> None:
    result = engine.run(request("sleep", "100", time_limit_seconds=1.0), lines.append)
    assert (result.timed_out, result.oom_killed) == (True, False)
    assert 1.0 <= result.seconds < 90.0


def test_a_program_that_is_not_there_is_exit_code_127(engine: Engine, lines: list[str]) -> None:
    assert engine.run(request("no-such-program"), lines.append).exit_code == 127


def test_an_image_that_is_not_there_is_an_engine_error(engine: Engine) -> None:
    with pytest.raises(EngineError, match="No such image"):
        engine.run(request("true", image="localhost/x/nowhere:1"), print)


def test_an_unknown_cdi_device_is_an_engine_error_that_names_it(engine: Engine) -> None:
    devices = DeviceAccess(cdi=("nvidia.com/gpu=77",))
    with pytest.raises(EngineError, match=r"nvidia\.com/gpu=77"):
        engine.run(request("true", devices=devices), print)


def test_nothing_is_reaped_where_nothing_was_abandoned(engine: Engine) -> None:
    engine.run(request("true"), print)
    assert engine.reap() == ()


def test_features_and_devices_are_told(engine: Engine) -> None:
    features = engine.features()
    assert features.containerd_store
    assert features.named_contexts
    assert features.free_bytes is not None
    assert engine.buildx
    assert engine.machine == platform.machine()
    assert isinstance(engine.host_devices().cdi, tuple)


def python(code: str, **changes: Any) -> RunRequest:
    return request("python3", "-c", code, **changes)


@pytest.mark.docker
class TestTheRealEngine:
    """What a fake cannot prove."""

    def run(self, private: Private, asked: RunRequest) -> tuple[int, list[str]]:
        lines: list[str] = []
        result = private.connect().run(asked, lines.append)
        assert private.leftovers() == 0
        return result.exit_code, lines

    def test_a_container_has_no_network_no_capabilities_and_a_read_only_root(
        self, private: Private
    ) -> None:
        code, lines = self.run(private, request("touch", "/here"))
        assert code == 1
        assert "Read-only" in lines[0]
        _, lines = self.run(
            private, request("sh", "-c", "ls /sys/class/net; grep CapEff /proc/self/status")
        )
        assert lines == ["lo", "CapEff:\t0000000000000000"]

    def test_only_writable_binds_and_tmpfs_can_be_written(
        self, private: Private, tmp_path: Path
    ) -> None:
        for name in ("ro", "rw"):
            (tmp_path / name).mkdir()
        binds = (
            Bind(source=tmp_path / "ro", target="/ro"),
            Bind(source=tmp_path / "rw", target="/rw", writable=True),
        )
        asked = request("sh", "-c", "touch /rw/a /tmp/a && touch /ro/a", binds=binds)
        code, _ = self.run(private, asked)
        assert code == 1
        assert [path.name for path in (tmp_path / "rw").iterdir()] == ["a"]
        assert not list((tmp_path / "ro").iterdir())

    def test_what_is_compiled_into_tmp_can_be_run(self, private: Private) -> None:
        code, lines = self.run(private, request("sh", "-c", "cp /bin/true /tmp/t && /tmp/t"))
        assert (code, lines) == (0, [])

    def test_a_run_has_the_chosen_user_and_numeric_groups(self, private: Private) -> None:
        asked = request("id", "-G", user="1234:1234", devices=DeviceAccess(groups=(992, 44)))
        _, lines = self.run(private, asked)
        assert set(lines[0].split()) == {"1234", "992", "44"}

    def test_out_of_memory_is_told_apart_from_the_time_limit(self, private: Private) -> None:
        asked = python("a = bytearray(900 << 20)", memory_bytes=128 << 20)
        result = private.connect().run(asked, print)
        assert (result.oom_killed, result.timed_out, result.exit_code) == (True, False, 137)

    def test_exit_137_by_itself_is_neither(self, private: Private) -> None:
        result = private.connect().run(request("sh", "-c", "exit 137"), print)
        assert (result.oom_killed, result.timed_out, result.exit_code) == (False, False, 137)

    def test_undecodable_bytes_and_a_line_of_5_mb_do_no_harm(self, private: Private) -> None:
        code = "import sys; sys.stdout.buffer.write(b'x' * 5_000_000 + b'\\n\\xff\\n')"
        _, lines = self.run(private, python(code))
        assert lines[1] == "\N{REPLACEMENT CHARACTER}"
        assert lines[0].endswith("more characters)")
        assert len(lines[0]) < 20_000

    def test_a_million_lines_arrive(self, private: Private) -> None:
        _, lines = self.run(private, python("for i in range(1_000_000): print(i)"))
        assert len(lines) == 1_000_000
        assert lines[-1] == "999999"

    def test_a_program_that_closes_its_output_is_waited_for(self, private: Private) -> None:
        code, _ = self.run(private, request("sh", "-c", "exec >&- 2>&-; sleep 2; exit 4"))
        assert code == 4

    def test_an_error_of_the_one_who_reads_is_not_the_engines(self, private: Private) -> None:
        def full(_line: str) -> None:
            raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space left"):
            private.connect().run(request("sh", "-c", "echo a; sleep 60"), full)
        assert private.leftovers() == 0

    @pytest.mark.parametrize("kind", ["vendor.test/gpu", "nvidia.com/gpu", "amd.com/gpu"])
    def test_a_cdi_device_brings_its_node_tool_and_environment(
        self, private: Private, tmp_path: Path, kind: str
    ) -> None:
        tool = tmp_path / "smi"
        tool.write_text("#!/bin/sh\necho one fake device\n")
        tool.chmod(0o755)
        file = private.place.cdi / f"{kind.replace('/', '-')}.json"
        file.write_text(cdi_specification(kind, tool))
        device = f"{kind}=0"
        engine = private.connect()
        try:
            wait_until(lambda: device in engine.host_devices().cdi)
            asked = request(
                "sh",
                "-c",
                "/usr/bin/fake-smi; test -c /dev/fake0 && echo node; echo $FAKE_GPU",
                devices=DeviceAccess(cdi=(device,)),
            )
            assert self.run(private, asked) == (0, ["one fake device", "node", "yes"])
        finally:
            file.unlink()

    def test_a_bootstrapped_base_names_public_mirrors_and_carries_no_lists(
        self, private: Private
    ) -> None:
        emptied = "/var/lib/apt/lists /var/cache/apt /var/log /tmp"
        count = f"find {emptied} -name partial -prune -o -type f -print | wc -l"
        sources = "cat /etc/apt/sources.list; ls /etc/apt/sources.list.d"
        asked = request("sh", "-c", f"{sources}; {count}")
        _, lines = self.run(private, asked)
        public = bases.apt_sources(
            Bootstrap(suite="bookworm", include=()),
            "http://deb.debian.org/debian",
            "http://deb.debian.org/debian-security",
        )
        assert lines == [*public.splitlines(), "0"]
        _, lines = self.run(private, request("python3.11", "-c", "import ssl, sqlite3; print(1)"))
        assert lines == ["1"]

    def test_gpus_without_a_toolkit_is_an_engine_error(self, private: Private) -> None:
        if private.connect().host_devices().gpus:
            pytest.skip("this machine has NVIDIA's toolkit")
        with pytest.raises(EngineError, match="device driver"):
            private.connect().run(request("true", devices=DeviceAccess(gpus=True)), print)
        assert private.leftovers() == 0


def cdi_specification(kind: str, tool: Path) -> str:
    """CDI 0.6.0 (github.com/cncf-tags/container-device-interface), one device made of /dev/null."""
    edits = {
        "env": ["FAKE_GPU=yes"],
        "deviceNodes": [{"path": "/dev/fake0", "hostPath": "/dev/null"}],
        "mounts": [
            {
                "hostPath": str(tool),
                "containerPath": "/usr/bin/fake-smi",
                "options": ["ro", "bind"],
            }
        ],
    }
    devices = [{"name": "0", "containerEdits": edits}]
    return json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": devices})


CLIENT = """
import sys
from warpfront.system import process
from warpfront.images.engine.protocol import RunRequest, connect
asked = RunRequest(image=sys.argv[1], command=("sh", "-c", "trap '' INT TERM; sleep 100"),
                   time_limit_seconds=90.0)
with process.terminable():
    connect(process.environment()).run(asked, print)
"""


@pytest.mark.docker
class TestDeath:
    """Of the client, and of the daemon."""

    def client(self, private: Private) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DOCKER_HOST": private.place.host}
        return subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", CLIENT, IMAGE], env=environment
        )

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_no_container_stays_when_its_client_is_told_to_end(
        self, private: Private, number: signal.Signals
    ) -> None:
        with self.client(private) as client:
            wait_until(lambda: bool(private.runs()))
            client.send_signal(number)
            try:
                assert client.wait(ANSWER_SECONDS) != 0
            except subprocess.TimeoutExpired:
                client.send_signal(signal.SIGABRT)  # it prints where it stands, and ends
                raise
        assert private.leftovers() == 0

    def test_the_container_of_a_killed_client_is_reaped_and_no_other(
        self, private: Private
    ) -> None:
        with self.client(private) as killed, self.client(private) as living:
            wait_until(lambda: len(private.runs()) == 2)
            killed.kill()
            killed.wait()
            engine = private.connect()
            assert len(engine.reap()) == 1
            assert private.leftovers() == 1
            assert engine.reap() == ()
            living.terminate()
        assert private.leftovers() == 0

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_a_daemon_that_dies_is_not_taken_for_a_failed_container(
        self, private: Private, number: signal.Signals
    ) -> None:
        engine = private.connect()
        killer = threading.Thread(target=self.kill_when_running, args=(private, number))
        killer.start()
        try:
            with pytest.raises(EngineError, match="went away"):
                engine.run(request("sleep", "50"), print)
        finally:
            killer.join()
            wait_until(lambda: private.status().state == "stale")
            assert private.start().state == "running"
        engine.reap()
        assert private.leftovers() <= 1  # this very process lives: its own container is not reaped
        for row in private.client.api.containers(all=True, filters={"label": RUN_LABEL}):
            private.client.api.remove_container(row["Id"], force=True)
        assert engine.run(request("true"), print).exit_code == 0

    def kill_when_running(self, private: Private, number: signal.Signals) -> None:
        wait_until(lambda: bool(private.runs()))
        private.kill_daemon(number)


@pytest.mark.docker
class TestTheEmbeddedEngine:
    """Started, stopped, killed: twice, and without a trace."""

    def test_it_starts_and_stops_twice_and_leaves_nothing(self, state: Path) -> None:
        found = Private(state)
        try:
            first = found.status()
            assert first.state == "running"
            assert found.start() == first
        finally:
            found.client.close()
            found.stop()
        assert found.stop().state == "stopped"
        assert found.status().state == "stopped"
        assert traces(found.place) == []

    def test_after_kill_9_it_is_stale_and_starts_again_with_its_images(
        self, private: Private, tmp_path: Path
    ) -> None:
        before = private.status()
        made = private.connect().import_rootfs(small_tar(tmp_path / "a"), "localhost/x/k:1", {}, {})
        private.kill_daemon(signal.SIGKILL)
        wait_until(lambda: private.status().state == "stale")
        after = private.start()
        assert (after.state, after.pid == before.pid) == ("running", False)
        assert private.connect().image("localhost/x/k:1") == made

    def test_another_subnet_than_before_is_the_bridges_own_after_a_kill(
        self, private: Private, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        private.kill_daemon(signal.SIGKILL)
        wait_until(lambda: private.status().state == "stale")
        monkeypatch.setattr(embedded, "_SUBNETS", ("10.77.213.0/24", "192.168.213.0/24"))
        private.start()
        network = private.client.networks.get("bridge")
        (addresses,) = network.attrs["IPAM"]["Config"]
        routes = Path("/proc/net/route").read_text()
        assert addresses["Subnet"] in embedded._SUBNETS
        assert [line for line in routes.splitlines() if line.startswith(private.place.bridge)]

    def test_two_starts_at_once_start_one(self, state: Path) -> None:
        cache, _ = embedded.folders(process.environment())
        found: list[embedded.Status] = []
        threads = [
            threading.Thread(target=lambda: found.append(embedded.start(cache, state, print)))
            for _ in range(3)
        ]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len({status.pid for status in found}) == 1
            assert len(found) == 3
        finally:
            embedded.stop(cache, state, print)
        assert traces(embedded.EnginePlace(state=state)) == []

    def test_a_build_reaches_the_network_unless_it_is_told_not_to(
        self, private: Private, tmp_path: Path
    ) -> None:
        engine = private.connect()
        count = "print('routes', len(open('/proc/net/route').readlines()))"
        text = f"FROM {IMAGE}\n"
        text += "".join(
            f'RUN --network={net} python3 -c "{count}"\n' for net in ("default", "none")
        )
        (tmp_path / "Dockerfile").write_text(text)
        argv = (
            *engine.buildx,
            "build",
            "--progress=plain",
            "--output=type=cacheonly",
            str(tmp_path),
        )
        done = process.run(process.Command(argv=argv, environment=engine.build_environment)).check()
        counts = [
            line.split()[-1]
            for line in done.stderr.splitlines()
            if line.split()[-2:-1] == ["routes"]
        ]
        assert counts == ["3", "1"]

    def test_a_published_port_is_reached_from_the_host_and_by_its_address(
        self, private: Private, state: Path
    ) -> None:
        """Two engines beside each other, of which one ends: the other's port stays."""
        with serving(private.client, "first") as port:
            other = Private(state)
            try:
                # As it is packed: an import would pack it again.
                held = private.client.images.get(IMAGE).save(named=True)
                other.client.images.load(b"".join(held))
                with serving(other.client, "second") as theirs:
                    for address in ("127.0.0.1", host_address()):
                        assert answer(address, port) == "first"
                        assert answer(address, theirs) == "second"
                    other.stop()
                    with pytest.raises(ConnectionRefusedError):
                        answer("127.0.0.1", theirs)
            finally:
                other.client.close()
                other.stop()
            assert traces(other.place) == []
            assert answer("127.0.0.1", port) == "first"
        with pytest.raises(ConnectionRefusedError):
            answer("127.0.0.1", port)

    def test_a_killed_daemon_leaves_no_port_that_nobody_serves(self, private: Private) -> None:
        with serving(private.client, "x") as port:
            private.kill_daemon(signal.SIGKILL)
            wait_until(lambda: private.status().state == "stale")
            private.start()
            with pytest.raises(ConnectionRefusedError):
                answer("127.0.0.1", port)


@contextlib.contextmanager
def serving(client: docker.DockerClient, text: str) -> Iterator[int]:
    """A container that answers every HTTP request with `text`; the host's port of it."""
    program = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "  def do_GET(self):\n"
        f"    self.send_response(200); self.end_headers(); self.wfile.write({text.encode()!r})\n"
        "h.HTTPServer(('', 8000), H).serve_forever()"
    )
    container = client.containers.run(
        IMAGE, ["python3", "-c", program], ports={"8000/tcp": None}, detach=True
    )
    try:
        container.reload()
        published = (container.ports["8000/tcp"] or [{}])[0]
        port = int(published["HostPort"])
        wait_until(lambda: answers(port))
        yield port
    finally:
        with contextlib.suppress(docker.errors.APIError, requests.exceptions.RequestException):
            container.remove(force=True)


def answer(address: str, port: int) -> str:
    connection = http.client.HTTPConnection(address, port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        return connection.getresponse().read().decode()


def answers(port: int) -> bool:
    """Whether the service is there: until then its connections are closed at once."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return bool(answer("127.0.0.1", port))
    return False


def host_address() -> str:
    """The address that this host has towards other machines; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def traces(place: embedded.EnginePlace) -> list[str]:
    """What an engine may leave on its machine: nothing of this."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line for line in mounts if place.key in line or str(place.state) in line]
    found += [str(path) for path in Path("/sys/class/net").glob(f"*{place.network_key}*")]
    found += [str(path) for path in Path("/run/warpfront").glob(place.key)]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if f"/run/warpfront/{place.key}/".encode() in line or str(place.state).encode() in line:
            found.append(line.decode(errors="replace"))
    return found
