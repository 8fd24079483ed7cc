"""A BuildKit daemon alone, as buildx's driver `remote` wants one: that of a Docker Engine, behind a
door with TLS on loopback that asks for a certificate.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import trustme

_UPGRADE = b"POST /grpc HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where it is, and what buildx needs to come in."""

    address: str
    options: str

    @classmethod
    def of(cls, port: int, folder: Path) -> Door:
        files = {name: folder / f"{name}.pem" for name in ("cacert", "cert", "key")}
        options = ",".join(f"{name}={path}" for name, path in files.items())
        return cls(address=f"tcp://127.0.0.1:{port}", options=f"servername=127.0.0.1,{options}")


@contextlib.contextmanager
def grpc_door(engine: Path, folder: Path) -> Iterator[Door]:
    """The BuildKit of the engine with this socket, on a port of its own."""
    context = _certificates(folder)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, context, engine), daemon=True).start()
        yield Door.of(server.getsockname()[1], folder)


def _certificates(folder: Path) -> ssl.SSLContext:
    """One authority for both ends, whose files lie in `folder`."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "cacert.pem")
    client = authority.issue_cert("buildx")
    client.private_key_pem.write_to_path(folder / "key.pem")
    client.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["h2"])
    return context


def _serve(server: socket.socket, context: ssl.SSLContext, engine: Path) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:  # closed: the test is over
            return
        threading.Thread(target=_join, args=(client, context, engine), daemon=True).start()


def _join(raw: socket.socket, context: ssl.SSLContext, engine: Path) -> None:
    with contextlib.suppress(OSError, ssl.SSLError), raw:
        client = context.wrap_socket(raw, server_side=True)
        with client, socket.socket(socket.AF_UNIX) as daemon:
            daemon.connect(str(engine))
            daemon.sendall(_UPGRADE)
            said = b""
            while b"\r\n\r\n" not in said:
                said += daemon.recv(1)
            back = threading.Thread(target=_copy, args=(daemon, client), daemon=True)
            back.start()
            _copy(client, daemon)
            back.join()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := one.recv(1 << 16):
            other.sendall(data)
    with contextlib.suppress(OSError):
        other.shutdown(socket.SHUT_RDWR)
