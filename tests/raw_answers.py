"""A server that answers by bytes which no server's library would send."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

Answer = Callable[[bytes], Iterable[bytes]]


@contextlib.contextmanager
def sending(answer: Answer) -> Iterator[str]:
    """The address of who answers each request by these bytes and nothing else."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    line, _ = server.accept()
                    threading.Thread(target=_answered, args=(line, answer), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:  # or its thread goes on to accept, on the descriptor of whatever is opened next
            server.shutdown(socket.SHUT_RDWR)


def _answered(line: socket.socket, answer: Answer) -> None:
    with line, contextlib.suppress(OSError):
        if line.recv(1, socket.MSG_PEEK) == b"\x16":
            line.sendall(b"HTTP/1.0 400 no TLS\r\n\r\n")
            return
        while asked := line.recv(1 << 16):
            for piece in answer(asked):
                line.sendall(piece)


def an_answer(status: str = "200 OK", body: bytes = b"", **headers: str) -> bytes:
    said = {
        "Content-Length": str(len(body)),
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    head = "".join(f"{name}: {text}\r\n" for name, text in said.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body
