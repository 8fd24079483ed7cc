"""A machine on disk: everything that detection reads, so that detection can be tested
without the machine.

A recording is a folder: `recording.json` (source, whether it is a stand-in, environment, device
nodes, and the file of each program's output), `files/` (copies of files, by absolute path) and
`output/` (output of programs). `python -m warpfront_checks detect --record FOLDER` makes one;
serial numbers are blanked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpfront_checks.hardware.machine_reader import Machine, ProgramOutput

SCHEMA = 1
_VARIABLE = re.compile(
    r"(CUDA|NVIDIA|HIP|ROCR|HSA|GPU_DEVICE|HABANA)_?[A-Z_]*VISIBLE|GPU_DEVICE_ORDINAL"
    r"|PT_HPU_(LAZY_MODE|GPU_MIGRATION)"
    r"|HSA_OVERRIDE_GFX_VERSION|PYTORCH_[A-Z]+_ALLOC_CONF"
)
_UUID = re.compile(r"(?<=GPU-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SERIAL = re.compile(r"(?m)^(unique_id|hive_id) \d+$")
# Of these files only the lines that are read, and of repeated ones only the first.
_KEPT = {
    "/proc/cpuinfo": re.compile(r"(processor|model name|flags|Features)\s*:"),
    "/proc/meminfo": re.compile(r"(MemTotal):"),
    "/proc/self/status": re.compile(r"(Cpus_allowed_list):"),
}


class RecordingError(Exception):
    """A recording cannot be used; the message names the file."""


class Recorded(Machine):
    """A recorded machine. What was not recorded is not there."""

    def __init__(self, folder: Path) -> None:
        try:
            document: Any = json.loads((folder / "recording.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RecordingError(f"{folder / 'recording.json'}: {error}") from error
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise RecordingError(f"{folder / 'recording.json'}: not of schema {SCHEMA}")
        self._folder, self.root = folder, folder / "files"
        self.source = str(document["source"])
        self.stand_in = bool(document["stand_in"])
        self.environment = document["environment"]
        self._nodes: Mapping[str, bool] = document["nodes"]
        self._programs: Mapping[str, Mapping[str, Any]] = document["programs"]

    def names(self, path: str) -> tuple[str, ...]:
        prefix = f"{path.rstrip('/')}/"
        below = (node.removeprefix(prefix) for node in self._nodes if node.startswith(prefix))
        nodes = {name.split("/")[0] for name in below}
        return tuple(sorted(nodes.union(super().names(path))))

    def access(self, path: str) -> bool | None:
        return self._nodes.get(path)

    def run(self, argv: tuple[str, ...]) -> ProgramOutput:
        recorded = self._programs.get(" ".join(argv))
        if recorded is None:
            return ProgramOutput(status=None, complaint="not found")
        output = recorded.get("output")
        return ProgramOutput(
            status=recorded["status"],
            output=(self._folder / "output" / output).read_text(encoding="utf-8") if output else "",
            complaint=recorded.get("complaint", ""),
        )


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """A source of detection and the beginning of its answer."""

    source: str
    said: str


class Recording(Machine):
    """A machine whose answers are stored: evidence of a report, to be saved as a recording."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self.environment = machine, machine.environment
        self._texts: dict[str, str] = {}
        self._nodes: dict[str, bool] = {}
        self._programs: dict[str, ProgramOutput] = {}
        # The beginning of each answer, in the order of the questions.
        self._said: dict[str, str] = {}
        self._listed: dict[str, None] = {}

    @property
    def evidence(self) -> tuple[ProbeRecord, ...]:
        return tuple(ProbeRecord(source=source, said=text) for source, text in self._said.items())

    def text(self, path: str) -> str | None:
        text = self._machine.text(path)
        if text is not None:
            self._texts[path], self._said[path] = text, _beginning(text)
        return text

    def names(self, path: str) -> tuple[str, ...]:
        names = self._machine.names(path)
        if path.startswith("/dev/"):
            self._listed |= dict.fromkeys(f"{path}/{name}" for name in names)
        return names

    def access(self, path: str) -> bool | None:
        allowed = self._machine.access(path)
        if allowed is not None:
            self._nodes[path] = allowed
            self._said[path] = "can be opened" if allowed else "may not be opened by this user"
        return allowed

    def run(self, argv: tuple[str, ...]) -> ProgramOutput:
        line, answer = " ".join(argv), self._machine.run(argv)
        ended = f"exit {answer.status}: {_beginning(answer.output or answer.complaint)}"
        self._programs[line] = answer
        self._said[line] = answer.complaint if answer.status is None else ended
        return answer

    def save(self, folder: Path, source: str) -> None:
        """Write all answers so far. Only variables that decide about devices are written."""
        nodes = {node: self._machine.access(node) for node in self._listed} | self._nodes
        for path, answer in self._texts.items():
            lines: dict[tuple[str, int], str] = {}
            for place, text in enumerate(answer.splitlines(keepends=True)):
                # Of a file that is not listed, every line.
                match = _KEPT[path].match(text) if path in _KEPT else None
                name = match[1] if match else ""
                if match or path not in _KEPT:
                    lines.setdefault((name, place * (name in {"", "processor"})), text)
            _write(folder / "files" / path.lstrip("/"), _blanked("".join(lines.values())))
        programs: dict[str, dict[str, object]] = {}
        for number, (line, ended) in enumerate(self._programs.items()):
            if ended.status is not None or ended.complaint != "not found":
                programs[line] = {"status": ended.status, "complaint": _blanked(ended.complaint)}
                if ended.output:
                    name = f"{number:02}-{line.split()[0]}.txt"
                    programs[line]["output"] = name
                    _write(folder / "output" / name, _blanked(ended.output))
        document = {
            "schema": SCHEMA,
            "source": source,
            "stand_in": False,
            "environment": {k: v for k, v in self.environment.items() if _VARIABLE.match(k)},
            "nodes": {node: allowed for node, allowed in nodes.items() if allowed is not None},
            "programs": programs,
        }
        _write(folder / "recording.json", json.dumps(document, indent=1, sort_keys=True) + "\n")


def _beginning(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines()]
    more = f" (and {len(lines) - 1} more lines)" if len(lines) > 1 else ""
    return (lines[0][:100] if lines else "nothing") + more


def _blanked(text: str) -> str:
    """Return the text without serial numbers: they identify a machine and decide nothing."""
    return _SERIAL.sub(r"\1 0", _UUID.sub("00000000-0000-0000-0000-000000000000", text))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
