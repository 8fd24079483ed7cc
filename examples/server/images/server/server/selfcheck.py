"""Start the service on a free port of loopback, send one request, and print what came back."""

import json
import socket
import threading
import time
import urllib.request

import uvicorn

from server.app import DEVICE, app

SECONDS = 30


def main() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            status, scores = ask(server, port)
        finally:
            server.should_exit = True
            thread.join()
    if len(scores) != 2:
        raise SystemExit(f"expected two scores, got {scores}")
    print(f"{status} on {DEVICE}: {scores}")


def ask(server: uvicorn.Server, port: int) -> tuple[int, list[float]]:
    end = time.monotonic() + SECONDS
    while not server.started:
        if time.monotonic() > end:
            raise SystemExit(f"the service did not start within {SECONDS} s")
        time.sleep(0.1)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/predict",
        data=json.dumps({"values": [1, 2, 3, 4]}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as response:
        return response.status, json.load(response)["scores"]


if __name__ == "__main__":
    main()
