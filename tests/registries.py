"""A real registry for tests: Debian's docker-registry (distribution 2.8), unpacked and not
installed, on loopback with TLS from a certificate authority made for it, and a password.

`with real_registry(folder) as registry:` starts one and stops it; `registry.environment` is what a
program needs to find its password and to trust it. Tests that start one are marked `process`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

import yaml

from warpfront.images.engine import embedded
from warpfront.system.process import cache_folder
from warpfront.system.store import exclusive

USER = "publisher"
PASSWORD = "a canary that nobody may print"
# bcrypt of it, at the least cost: the standard library's own `crypt` is going away.
_HTPASSWD = f"{USER}:$2b$04$mslHq3RYfcs7gz1cXNWf4.nJXaSNjH0Q9a4RoP2/aqSegltffl2oO\n"
_READY_SECONDS = 20.0


def registry_program() -> Path:
    """Debian's docker-registry: fetched once per machine, by apt, from where its apt fetches."""
    return _program("docker-registry", embedded.this_distribution().codename, name="registry")


def strangers_program(name: str) -> Path:
    """`cosign` or `oras`, which look at what we publish without us: Debian 13's, which run on
    Debian 12.
    """
    return _program(name, "trixie", name=name)


def cosign_3() -> Path:
    """Of Debian's unstable; it runs on Debian 12, and signs in another form than 2 does."""
    return _program("cosign", "sid", name="cosign-sid")


def _program(package: str, codename: str, *, name: str) -> Path:
    distribution = embedded.this_distribution()
    root = cache_folder() / "packages" / f"{name}-{distribution.key}"
    with exclusive(root.parent, print, name=f".{name}.lock"):
        if not root.is_dir():
            suite = embedded.Suite(suite=codename, packages=(package,))
            embedded._fill(root, distribution, (suite,), print)
    return root / "usr/bin" / package


@dataclass(slots=True, kw_only=True)
class RealRegistry:
    """A running docker-registry. `host` is `127.0.0.1:port`; its blobs are below `data`."""

    folder: Path
    host: str
    tls: bool
    password: bool
    deletes: bool = True
    child: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def docker_config(self) -> Path:
        """A folder for DOCKER_CONFIG, in which the password is."""
        return self.folder / "docker"

    @property
    def environment(self) -> Mapping[str, str]:
        """This machine's environment, with the password and the certificate authority."""
        trusted = {"REQUESTS_CA_BUNDLE": str(self.ca), "SSL_CERT_FILE": str(self.ca)}
        return {
            **os.environ,
            "DOCKER_CONFIG": str(self.docker_config),
            **(trusted if self.tls else {}),
        }

    def start(self) -> None:
        assert self.child is None
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                (str(registry_program()), "serve", str(self.folder / "config.yml")),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath},
            )
        self._wait_until_ready()

    def send(self, number: signal.Signals) -> None:
        """STOP makes it hang, CONT go on."""
        assert self.child is not None
        self.child.send_signal(number)

    def kill(self) -> None:
        """As a power cut would. What it has written stays; `start` goes on with it."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None

    def blob_file(self, digest: str) -> Path:
        """Where it keeps a blob, for tests that damage one."""
        name = digest.removeprefix("sha256:")
        return self.data / "docker/registry/v2/blobs/sha256" / name[:2] / name / "data"

    def _wait_until_ready(self) -> None:
        assert self.child is not None
        until = time.monotonic() + _READY_SECONDS
        while not self._answers():
            said = self.log.read_text(errors="replace")[-2000:]
            assert self.child.poll() is None, f"docker-registry did not start:\n{said}"
            assert time.monotonic() < until, f"docker-registry does not answer:\n{said}"
            time.sleep(0.02)

    def _answers(self) -> bool:
        scheme = "https" if self.tls else "http"
        context = ssl.create_default_context(cafile=str(self.ca)) if self.tls else None
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = Request(
            f"{scheme}://{self.host}/v2/", headers={"Authorization": f"Basic {login}"}
        )
        try:
            with urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextlib.contextmanager
def real_registry(
    folder: Path,
    *,
    tls: bool = True,
    password: bool = True,
    data: Path | None = None,
    deletes: bool = True,
) -> Iterator[RealRegistry]:
    """One in `folder`, for as long as the block lasts. `data` puts its blobs elsewhere, say on a
    small disk; without `deletes` it answers DELETE with 405.
    """
    folder.mkdir(parents=True, exist_ok=True)
    registry = RealRegistry(
        folder=folder,
        host=f"127.0.0.1:{_free_port()}",
        tls=tls,
        password=password,
        deletes=deletes,
    )
    if data is not None:
        registry.data.symlink_to(data)
    if tls:
        import trustme

        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(registry.ca))
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
    (folder / "htpasswd").write_text(_HTPASSWD)
    (folder / "config.yml").write_text(yaml.safe_dump(_configuration(registry)))
    registry.docker_config.mkdir(exist_ok=True)
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    logins = {registry.host: {"auth": login}} if password else {}
    (registry.docker_config / "config.json").write_text(json.dumps({"auths": logins}))
    registry.start()
    try:
        yield registry
    finally:
        registry.kill()


def _configuration(registry: RealRegistry) -> dict[str, object]:
    server = str(registry.folder / "server.pem")
    http: dict[str, object] = {"addr": registry.host, "secret": "so that uploads outlive a restart"}
    if registry.tls:
        http["tls"] = {"certificate": server, "key": server}
    configuration: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "info", "accesslog": {"disabled": False}},
        "storage": {
            "filesystem": {"rootdirectory": str(registry.data)},
            "delete": {"enabled": registry.deletes},
        },
        "http": http,
    }
    if registry.password:
        htpasswd = {"realm": "warpfront", "path": str(registry.folder / "htpasswd")}
        configuration["auth"] = {"htpasswd": htpasswd}
    return configuration


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
