"""Commands are values; running them leaves nothing behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from warpfront.errors import CommandFailedError, Terminated
from warpfront.system.process import Command, run, stop_all, stream, terminable

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-c",
    (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, lambda *_: exit(3))\n"
        "print('up', flush=True)\ntime.sleep(60)"
    ),
)


def test_secrets_are_masked_when_a_command_is_shown() -> None:
    command = Command(argv=("tool", "--token=abc", "REGISTRY_PASSWORD=x", "id=ca,src=f", "plain"))
    assert str(command) == "tool '--token=***' 'REGISTRY_PASSWORD=***' id=ca,src=f plain"


@pytest.mark.process
def test_a_missing_program_is_named() -> None:
    with pytest.raises(CommandFailedError, match="no-such-program: not found"):
        run(Command(argv=("no-such-program",)))


@pytest.mark.process
def test_both_streams_are_read_however_much_there_is() -> None:
    code = "import sys; sys.stderr.write('e' * 2_000_000); print('o' * 2_000_000)"
    done = run(Command(argv=(sys.executable, "-c", code)))
    assert (len(done.stdout), len(done.stderr)) == (2_000_001, 2_000_000)


@pytest.mark.process
def test_a_failure_shows_the_last_lines_and_the_code() -> None:
    done = run(Command(argv=("sh", "-c", "echo because >&2; exit 3")))
    with pytest.raises(CommandFailedError, match=r"exited with 3\nbecause"):
        done.check()


@pytest.mark.process
def test_a_command_that_outlives_its_time_is_stopped() -> None:
    with pytest.raises(CommandFailedError, match=r"stopped after 0\.5 s"):
        run(Command(argv=SLEEP, timeout_seconds=0.5))


@pytest.mark.process
def test_undecodable_output_and_very_long_lines_are_streamed() -> None:
    code = "import sys; sys.stdout.buffer.write(b'\\xff\\n' + b'x' * 5_000_000 + b'\\n')"
    lines: list[str] = []
    stream(Command(argv=(sys.executable, "-c", code)), lines.append)
    assert (lines[0], len(lines[1])) == ("\ufffd", 5_000_000)


@pytest.mark.process
@pytest.mark.parametrize("argv", [SLEEP, STUBBORN], ids=["sleeper", "ignores Ctrl-C"])
def test_sigterm_stops_the_child_and_unwinds(
    argv: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpfront.system.process.PATIENCE_SECONDS", (0.5, 5.0, 5.0))
    started = time.monotonic()

    def terminate_me(_line: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Terminated), terminable():
        stream(Command(argv=argv), terminate_me)
    assert time.monotonic() - started < 45


@pytest.mark.process
def test_stop_all_ends_what_other_threads_started() -> None:
    done: list[int] = []
    up = threading.Event()

    def work() -> None:
        done.append(stream(Command(argv=SLEEP), lambda _line: up.set()).returncode)

    thread = threading.Thread(target=work)
    thread.start()
    assert up.wait(120)
    stop_all()
    thread.join(120)
    assert done
    assert done[0] != 0
