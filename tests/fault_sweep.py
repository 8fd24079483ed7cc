"""lock, build and verify of a small project, killed at random moments, with flipped bits and full
disks between: every run after that ends as an undisturbed one does.

Project and cache lie on a disk of their own, so that it can be filled; the engine is the one that
commands on this machine use. The counts are kept after every round, in docs/results/faults.json and
faults.md: the same command goes on where one was interrupted, as another part with the next seed.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from projects import (
    REPOSITORY,
    SITE_VARIABLES,
    Ended,
    Project,
    cell_id,
    half_written,
    small_project,
    small_torch,
    unique_image,
)
from standins import Index, serve_index

from warpfront.images.engine.protocol import connect
from warpfront.images.labels import CELL, CONTENT_HASH
from warpfront.system.process import cache_folder, environment, run
from warpfront.system.provenance import read_provenance
from warpfront.system.tree_files import Provenance
from warpfront.wheels.sources import read_site
from warpfront.wheels.store.sdists import install_toolbox
from warpfront.wheels.store.wheelhouse import Wheelhouse

RESULTS = REPOSITORY / "docs" / "results"
SHARED = ("bases", "packages", "toolbox")
DISK_BYTES = 700_000_000
PADDING_BYTES = 20_000_000
STEPS = ("lock", "build", "verify")
# The stand-in for torch computes nothing.
STAND_IN_FAILS = {"verify": 7}
FLIP_IN = 0.3
FILL_IN = 0.1
FIFTHS = 5
# A guarded image; the number makes it another one, before its wheels or after its guard.
TEMPLATE = (
    "FROM {{ from_reference }} AS environment\nENV BEFORE=%d\n"
    '{%% include "_shared/wheels.j2" %%}\nENV PATH="/opt/venv/bin:$PATH"\n'
    '{%% include "_shared/guard.j2" %%}\nENV AFTER=%d\n'
)


@dataclass(kw_only=True)
class Counts:
    """What was done, and what came of it; `wrong`: a line for each run that did not end right."""

    kills: Counter[str] = field(default_factory=Counter)
    moments: Counter[str] = field(default_factory=Counter)
    ended_before: Counter[str] = field(default_factory=Counter)
    reruns: Counter[str] = field(default_factory=Counter)
    flips: Counter[str] = field(default_factory=Counter)
    full_disks: Counter[str] = field(default_factory=Counter)
    left_files: Counter[str] = field(default_factory=Counter)
    left_containers: int = 0
    wrong: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }


class Sweep:
    """One project, and everything that is done to it."""

    def __init__(self, folder: Path, index: Index, engine_name: str, seed: int) -> None:
        self.seed, self.random = seed, random.Random(seed)
        self.counts = Counts()
        self.image = unique_image()
        self.cell = cell_id(self.image)
        self.cache = folder / "cache" / "warpfront"
        self.folder = folder
        self.number = 0
        root = small_project(
            folder / "project",
            index.url,
            names=(self.image,),
            templates={self.image: TEMPLATE % (0, 0)},
        )
        self.project = Project(root=root, environment=self._alone(engine_name, index))
        self.client = docker.DockerClient(base_url=engine_name)
        self.right: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}

    def undisturbed(self) -> None:
        """What each step comes to, and how long it takes, where nothing happens. A step that fails
        by itself is nothing to hold others against.
        """
        for step in (*STEPS, *STEPS):
            self.prepare(step)
            ended = self.project.invoke(step, "--json").expect(STAND_IN_FAILS.get(step, 0))
            self.right[step] = self.came_to(step, ended)
            self.seconds[step] = ended.seconds

    def round(self) -> None:
        """One step, killed; then a fault or none; then the step again."""
        step = self.random.choice(STEPS)
        self.prepare(step)
        share = self.random.random()
        child = self.project.start(step, "--json")
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.child.wait(share * self.seconds[step])
        if child.child.poll() is not None:
            self.counts.ended_before[step] += 1
            return
        number = signal.SIGKILL
        (child.send_group if self.random.random() < 0.5 else child.send)(number)
        child.child.wait()
        self.counts.kills[step] += 1
        self.counts.moments[f"{step} {int(share * FIFTHS) + 1} of {FIFTHS}"] += 1
        what = f"kill {sum(self.counts.kills.values())} at {share:.2f} of {step}"
        what += self.flip() if self.random.random() < FLIP_IN else ""
        what += self.fill(step) if self.random.random() < FILL_IN else ""
        self.judge(what, step)

    def prepare(self, step: str) -> None:
        """So that the step has something to do."""
        if step == "lock":
            shutil.rmtree(self.project.root / "images" / "locks", ignore_errors=True)
        if step == "build":
            self.number += 1
            first = self.random.random() < 0.5
            numbers = (self.number, 0) if first else (0, self.number)
            template = self.project.root / "images" / self.image / "Dockerfile.j2"
            template.write_text(TEMPLATE % numbers, encoding="utf-8")

    def judge(self, what: str, step: str) -> None:
        ended = self.project.invoke(step, "--json")
        came = self.came_to(step, ended)
        damaged = [
            one for one in half_written(self.project.root / "build") if "put aside" not in one
        ]
        if came == self.right[step] and not damaged:
            self.counts.reruns[step] += 1
            print(f"{what}: right", flush=True)
            return
        said = ended.stderr.strip()[-500:]
        self.counts.wrong.append(f"{what}: {came} for {self.right[step]}; {damaged}; {said}")
        print(self.counts.wrong[-1], file=sys.stderr, flush=True)

    def came_to(self, step: str, ended: Ended) -> Any:
        """What a step that ended is compared by."""
        root, said = self.project.root, "a traceback" if "Traceback" in ended.said else ""
        if step == "lock":
            locks = sorted((root / "images" / "locks").glob("*.toml"))
            return ended.code, said, [path.read_text("utf-8") for path in locks]
        if step == "build":
            return ended.code, said, ended.code == 0 and self._is_labelled(ended.json[self.cell])
        try:
            checks = self.project.checks(self.cell, "x86_64")
        except (OSError, ValueError, KeyError) as error:
            return ended.code, said, repr(error)
        return ended.code, said, sorted((*key, one[0]) for key, one in checks.items())

    def _is_labelled(self, built: dict[str, Any]) -> bool:
        image = self.client.images.get(built["reference"])
        return bool(image.labels[CONTENT_HASH] == built["content_hash"])

    def flip(self) -> str:
        """One bit of one file that the wheelhouse keeps."""
        files = [path for path in self.cache.glob("wheelhouse/**/*") if path.is_file()]
        files = [path for path in files if path.stat().st_size]
        if not files:
            return ""
        path = self.random.choice(sorted(files))
        data = bytearray(path.read_bytes())
        bit = self.random.randrange(len(data) * 8)
        data[bit // 8] ^= 1 << bit % 8
        path.chmod(0o644)
        path.write_bytes(data)
        kind = path.suffix if not path.name.startswith(".") else path.name.rpartition(".")[2]
        self.counts.flips[kind.lstrip(".")] += 1
        return f", a bit flipped in {path.name}"

    def fill(self, step: str) -> str:
        """The step on a disk that has next to nothing left: it may fail, in words."""
        self.prepare(step)
        ballast = self.folder / "ballast"
        left = self.random.randrange(300_000)
        try:
            while not _filled(ballast, shutil.disk_usage(self.folder).free - left):
                left += 100_000  # what was killed may still be writing, and blocks need others
            ended = self._on_full_disk(step)
        finally:
            ballast.unlink()
        self.counts.full_disks[f"{step} exit {ended.code}"] += 1
        if "Traceback" in ended.said or ended.code not in {0, 6, 7, 9, 13}:
            said = ended.said.strip()[-500:]
            self.counts.wrong.append(f"{step} on a full disk: {ended.code}: {said}")
        return ", then a full disk"

    def _on_full_disk(self, step: str) -> Ended:
        """Its output goes to another disk."""
        done = subprocess.run(
            [sys.executable, "-m", "invoke", step, "--json"],
            cwd=self.project.root,
            env=self.project.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return Ended(code=done.returncode, stdout=done.stdout, stderr=done.stderr, seconds=0)

    def document(self) -> dict[str, Any]:
        return {"seed": self.seed, "seconds": self.seconds, **self.counts.document()}

    def end(self) -> None:
        """Count what the killed left, and take it away."""
        for path in (self.project.root / "build").rglob(".*"):
            if path.name not in {".lock", ".bake"}:
                self.counts.left_files[path.name.split("-")[0]] += 1
        for path in self.cache.rglob("*"):
            if path.suffix in {".part", ".new", ".old"} or path.name.startswith(".tmp"):
                self.counts.left_files[f"cache {path.suffix or '.tmp'}"] += 1
        images = [
            one for one in self.client.images.list() if self.image in one.labels.get(CELL, "")
        ]
        for image in images:
            known = str(image.id)
            for container in self.client.containers.list(all=True, filters={"ancestor": known}):
                self.counts.left_containers += 1
                container.remove(force=True)
            self.client.images.remove(known, force=True)
        self.client.close()

    def _alone(self, engine_name: str, index: Index) -> dict[str, str]:
        """A machine that knows one index and has the toolbox, with a cache on the small disk."""
        self.cache.mkdir(parents=True)
        for name in SHARED:
            (cache_folder() / name).mkdir(parents=True, exist_ok=True)
            (self.cache / name).symlink_to(cache_folder() / name)
        inherited = {name: text for name, text in os.environ.items() if name not in SITE_VARIABLES}
        return {
            **inherited,
            "DOCKER_HOST": engine_name,
            "XDG_CACHE_HOME": str(self.cache.parent),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": index.url,
            "UV_CACHE_DIR": str(self.cache.parent / "uv"),
            "TMPDIR": str(self.folder),
        }


def _filled(ballast: Path, size_bytes: int) -> bool:
    """A file of this many bytes; False where the disk did not have them."""
    ballast.unlink(missing_ok=True)
    with ballast.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(size_bytes, 1))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
    return True


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    """A folder on a disk of its own."""
    disk, folder = place / "disk", place / "mounted"
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    folder.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(disk)], check=True)
    subprocess.run(["mount", "-o", "loop", str(disk), str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


Part = Mapping[str, Any]
Keep = Callable[[dict[str, Any]], None]


def swept(seed: int, kills: int, *, seconds: float, keep: Keep) -> None:
    """`kills` kills, or those that there was time for; their counts are kept after each round."""
    site = read_site(run)
    install_toolbox(
        cache_folder(),
        Wheelhouse(cache_folder() / "wheelhouse"),
        site=lambda: site,
        on_progress=lambda *_: None,
    )
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="warpfront-faults-") as name:
        place = Path(name)
        wheels = small_torch(place / "wheels", padding_bytes=PADDING_BYTES)
        with serve_index(wheels, name="cpu") as index, small_disk(place) as folder:
            sweep = Sweep(folder, index, connect(environment()).name, seed)
            try:
                sweep.undisturbed()
                while sum(sweep.counts.kills.values()) < kills and time.monotonic() < deadline:
                    sweep.round()
                    keep(sweep.document())
            finally:
                sweep.end()
                keep(sweep.document())


def killed(parts: Sequence[Part]) -> int:
    """How often, in all of them."""
    return sum(sum(part["kills"].values()) for part in parts)


def sweep_on(
    parts: Sequence[Part], seed: int, kills: int, *, seconds: float, here: Provenance
) -> list[Part]:
    """The parts of this commit that there are, and one more that brings them to `kills`; what is
    of another commit is of another program.
    """
    about = {"commit": here.revision, "day": here.created[:10]}
    same = [part for part in parts if part["commit"] == here.revision]
    found = [*same]

    def keep(counts: dict[str, Any]) -> None:
        found[:] = [*same, {**about, **counts}]
        write(found)

    if killed(same) < kills:
        seed += len(same)
        swept(seed, kills - killed(same), seconds=seconds, keep=keep)
    return found


def added(parts: Sequence[Part], name: str) -> Any:
    """What the parts count under a name, together."""
    counted = [part[name] for part in parts]
    if not isinstance(counted[0], Mapping):
        return sum(counted[1:], counted[0])
    totals: Counter[str] = Counter()
    for one in counted:
        totals.update(one)
    return dict(sorted(totals.items()))


def page(parts: Sequence[Part]) -> str:
    """The same for people."""
    kills, early, reruns = (added(parts, name) for name in ("kills", "ended_before", "reruns"))
    seeds = ", ".join(str(part["seed"]) for part in parts)
    last = parts[-1]
    lines = [
        "<!-- Written by tools/fault-sweep. -->",
        "",
        f"`tools/fault-sweep`, commit {last['commit'][:12]}, {last['day']}, seeds {seeds}:",
        f"{killed(parts)} kills (SIGKILL, to the command or to its whole group), each at a random",
        "moment of its step, and then the step again.",
        "",
        "| step | killed | ended before the kill | then ended right |",
        "|---|---:|---:|---:|",
    ]
    for step in STEPS:
        row = (str(counts.get(step, 0)) for counts in (kills, early, reruns))
        lines.append(f"| {step} | {' | '.join(row)} |")
    for title, name in (
        ("Bits flipped between, by kind of file in the wheelhouse", "flips"),
        ("Runs on a full disk between, by how they ended", "full_disks"),
        ("Files that the killed left, and nobody took away", "left_files"),
    ):
        said = ", ".join(f"{key}: {count}" for key, count in added(parts, name).items())
        lines += ["", f"{title}: {said or 'none'}."]
    lines += ["", f"Containers left: {added(parts, 'left_containers')}.", ""]
    wrong = added(parts, "wrong")
    lines.append(f"Not right: {len(wrong) or 'none'}.")
    lines += [f"* {_short(line)}" for line in wrong]
    return "\n".join(lines) + "\n"


def _short(line: str) -> str:
    """What was done, and the last words of what came of it."""
    words = " ".join(line.split())
    return words if len(words) < 300 else f"{words[:120]} ... {words[-150:]}"


def this_commit() -> Provenance:
    return read_provenance(REPOSITORY, run)


def kept() -> list[Part]:
    """The parts of the sweep before."""
    found = json.loads((RESULTS / "faults.json").read_text(encoding="utf-8"))
    return list(found["parts"])


def write(parts: Sequence[Part]) -> None:
    """Each file whole: an interruption leaves the one before."""
    text = json.dumps({"parts": parts}, indent=1, sort_keys=True)
    for name, content in (("faults.json", f"{text}\n"), ("faults.md", page(parts))):
        new = RESULTS / f".{name}.new"
        new.write_text(content, encoding="utf-8")
        new.replace(RESULTS / name)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/fault-sweep", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200, help="of all parts together")
    parser.add_argument("--minutes", type=float, default=240.0, help="begin no round after these")
    parser.add_argument("--anew", action="store_true", help="do not go on with what there is")
    options = parser.parse_args()
    # As Ctrl-C: the disk is unmounted and the images go.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parts = [] if options.anew else kept()
    limit = options.minutes * 60
    parts = sweep_on(parts, options.seed, options.kills, seconds=limit, here=this_commit())
    print(page(parts))
    return int(bool(added(parts, "wrong")))


if __name__ == "__main__":
    raise SystemExit(main())
