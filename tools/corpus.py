#!/usr/bin/env python3
"""What the requirements of well-known projects do to an image's torch: with plain tools, and with
the guard's constraints.

Fetches the files that tests/corpus/projects.toml names (https, by commit, checked by sha256), or
takes them from --folder (<owner>/<repository>/<path>). For each project and each torch it asks uv
for a dry run in a folder that holds stand-ins: metadata only, with the versions and the
Requires-Dist of the image's torch stack. Nothing is installed, built or run.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from warpfront.images.preparing import locked_inputs
from warpfront.matrix.cell import Selection
from warpfront.pipeline.workspace import open_workspace
from warpfront.system.process import cache_folder, run
from warpfront.wheels.core_metadata import plain_requirement
from warpfront.wheels.resolve.candidates import requirers_without_wheels
from warpfront.wheels.resolve.resolver import Contradiction, UvResolver
from warpfront.wheels.sources import read_site
from warpfront.wheels.store.wheelhouse import Wheelhouse
from warpfront.wheels.uv_program import uv_binary, uv_version
from warpfront_checks.guard.channels import constraint_lines
from warpfront_checks.guard.names import triton_shims
from warpfront_checks.guard.policy import Policy
from warpfront_port.commands.preflighting import examine, stacks_in
from warpfront_port.commands.project_files import read_files
from warpfront_port.preflight.declared import FileRequirements
from warpfront_port.preflight.effects import ProjectLines
from warpfront_port.preflight.findings import Preflight
from warpfront_port.preflight.stacks import CellStack

ROOT = Path(__file__).parents[1]
TORCHES = ("2.13.0+cpu", "2.14.1", "2.9.1+rocm6.4")
PYTHON = "3.11"
SECONDS = 120
CHANGED = re.compile(r"^ ([-+]) ([A-Za-z0-9._-]+)==(\S+)$", re.MULTILINE)
KINDS = (
    "torch-moved:",
    "torch-moved-by-dependency:",
    "triton-replaced:",
    "foreign-library:",
    "companion-build:",
)
PIP_SECONDS = 900
PIP_FILE = "guard-corpus-pip.json"
PAGE = ROOT / "docs" / "results" / "guard-corpus.md"
PIP = (
    sys.executable,
    "-m",
    "pip",
    "--python",
    "e/bin/python",
    "install",
    "--dry-run",
    "--quiet",
    "--use-feature=fast-deps",
    "--only-binary",
    ":all:",
    "--report",
    "report.json",
    "-r",
    "r.txt",
)
TRITONS = frozenset({"triton", "pytorch-triton-rocm", "triton-rocm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """One entry of projects.toml; `files` are (path, sha256), the first the one installed from."""

    name: str
    repository: str
    commit: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One dry run: `outcome` is intact, overwritten or failed; `changed` the stack's distributions
    with their new versions; `without` what was left out because it has no wheel.
    """

    outcome: str
    changed: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One project on one torch. `plain` is uv's dry run, `pip` pip's. `guarded` is intact, refused,
    overwritten or unresolved.
    """

    project: str
    torch: str
    plain: Tried
    guarded: str
    guarded_run: Tried
    preflight: tuple[str, ...]
    unknown: tuple[str, ...]
    pip: Tried | None = None


class Silence:
    """Nobody is told."""

    def say(self, text: str) -> None:
        del text

    def advance(self, what: str, done_bytes: int, total_bytes: int) -> None:
        del what, done_bytes, total_bytes

    def step(self, cell_id: str, text: str) -> None:
        del cell_id, text

    def line(self, cell_id: str, text: str) -> None:
        del cell_id, text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where the files are, or are fetched to")
    parser.add_argument("--offline", action="store_true", help="fetch no file that is not there")
    parser.add_argument(
        "--only", default="", help="only projects whose name holds one of these (a,b)"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "results", help="where all rows are, as JSON"
    )
    parser.add_argument("--pip", action="store_true", help="only try plain pip")
    parser.add_argument("--resume", action="store_true", help="keep the rows that are in --out")
    parser.add_argument("--results", type=Path, help="draw the table of these results; try nothing")
    options = parser.parse_args()
    if options.results:
        document = json.loads(options.results.read_text("utf-8"))
        save(list(rows_of(document)), folder=options.out)
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="warpfront-corpus-"))
    wanted = options.only.split(",")
    projects = [one for one in read_projects() if any(part in one.name for part in wanted)]
    for project in projects:
        fetch(project, folder, offline=options.offline)
    pip_pass(projects, folder, options.out)
    if not options.pip:
        kept = read_rows(options.out) if options.resume else ()
        missing = [one for one in projects if one.name not in {row.project for row in kept}]
        results(missing, folder, kept, functools.partial(save, folder=options.out))
    return 0


def read_rows(folder: Path) -> tuple[Row, ...]:
    """The rows of an earlier run."""
    return tuple(rows_of(json.loads((folder / "guard-corpus.json").read_text("utf-8"))))


def tried_of(form: Mapping[str, Any]) -> Tried:
    return Tried(**{**form, "reason": reason_of(form["reason"])})


def rows_of(document: Mapping[str, Any]) -> Iterable[Row]:
    return (
        Row(
            **{
                **one,
                "plain": tried_of(one["plain"]),
                "guarded_run": tried_of(one["guarded_run"]),
                "pip": tried_of(one["pip"]) if one.get("pip") else None,
            }
        )
        for one in document["rows"]
    )


def save(rows: list[Row], *, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tried = folder / PIP_FILE
    pip = json.loads(tried.read_text("utf-8")) if tried.is_file() else {}
    document = document_of(rows, pip)
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    (folder / "guard-corpus.json").write_text(text, "utf-8")
    page = PAGE if folder == ROOT / "build" / "results" else folder / PAGE.name
    page.write_text(table(document), "utf-8")


def read_projects() -> tuple[Project, ...]:
    text = (ROOT / "tests" / "corpus" / "projects.toml").read_text("utf-8")
    return tuple(
        Project(
            name=one["name"],
            repository=one["repository"],
            commit=one["commit"],
            files=tuple((file["path"], file["sha256"]) for file in one["files"]),
        )
        for one in tomllib.loads(text)["project"]
    )


def results(
    projects: Iterable[Project],
    folder: Path,
    kept: Iterable[Row],
    save: Callable[[list[Row]], None],
) -> None:
    """Every project on every torch, four projects at a time; `save` gets what there is so far."""
    stacks = chosen_stacks()
    rows = list(kept)
    with tempfile.TemporaryDirectory(prefix="warpfront-") as name, ThreadPoolExecutor(4) as pool:
        environments = {
            (stack.torch, guarded): stand_ins(stack, Path(name), guarded=guarded)
            for stack in stacks
            for guarded in (False, True)
        }

        def attempt(project: Project) -> list[Row]:
            found = [tried_both(project, folder, environments, stack) for stack in stacks]
            return with_preflight(project, folder, stacks, found)

        for future in as_completed([pool.submit(attempt, one) for one in projects]):
            new = future.result()
            rows = sorted((*rows, *new), key=lambda row: (row.project, row.torch))
            said = [f"{row.plain.outcome}/{row.guarded}/{len(row.preflight)}" for row in new]
            print(f"{new[0].project}: {', '.join(said)}", file=sys.stderr, flush=True)
            save(rows)


def document_of(rows: list[Row], pip: Mapping[str, Any]) -> dict[str, Any]:
    """`pip` maps `project torch` to pip's dry run."""
    rows = [
        replace(row, pip=tried_of(pip[key]))
        if (key := f"{row.project} {row.torch}") in pip
        else row
        for row in rows
    ]
    return {
        "schema": 1,
        "torches": list(TORCHES),
        "uv": uv_version(),
        "figures": figures(rows),
        "rows": [asdict(row) for row in rows],
    }


def chosen_stacks() -> tuple[CellStack, ...]:
    """The matrix's own stacks, all on one Python, so that they differ in torch only."""
    opened = open_workspace(ROOT)
    inputs = locked_inputs(opened.matrix, opened.material, opened.folders, Selection())
    every = stacks_in(inputs)
    chosen = (next(one for one in every if one.torch == torch) for torch in TORCHES)
    return tuple(
        replace(one, python=PYTHON, inputs=replace(one.inputs, python=PYTHON)) for one in chosen
    )


def fetch(project: Project, folder: Path, *, offline: bool) -> None:
    """Every file of a project, as its commit has it."""
    for path, sha256 in project.files:
        target = folder / project.repository / path
        if not target.is_file():
            if offline:
                raise SystemExit(f"{target}: not there")
            url = f"https://raw.githubusercontent.com/{project.repository}/{project.commit}/{path}"
            with urllib.request.urlopen(url, timeout=60) as response:
                data = response.read()
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        found = hashlib.sha256(target.read_bytes()).hexdigest()
        if found != sha256:
            raise SystemExit(f"{target}: sha256 {found}, projects.toml says {sha256}")


def stand_ins(stack: CellStack, above: Path, *, guarded: bool) -> Path:
    """A folder that a tool takes for the image's site-packages: the dist-info of each distribution
    of the stack, with its Requires-Dist, and of the guard's shims. No code.
    """
    folder = above / f"{stack.torch}-{'guarded' if guarded else 'plain'}"
    demands = requires_dist(stack)
    for name, version in stack.stack.versions.items():
        put_stand_in(folder, name, version, demands.get(name, ()))
    for shim in triton_shims(stack.stack.versions) if guarded else ():
        put_stand_in(folder, shim.name, shim.version, (shim.requires,))
    return folder


def put_stand_in(folder: Path, name: str, version: str, requires: Iterable[str]) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n", "utf-8")
    (info / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    (info / "RECORD").write_text("")
    (info / "INSTALLER").write_text("stand-in\n")


def requires_dist(stack: CellStack) -> dict[str, tuple[str, ...]]:
    """What the stack's distributions demand, as PyPI's builds of the same versions say.

    A CPU or ROCm build differs from PyPI's in the names of the vendor's libraries and of triton:
    these demands are dropped, and the stack's own triton takes their place.
    """
    public = {name: version.partition("+")[0] for name, version in stack.stack.versions.items()}
    wanted = tuple(
        f"{name}=={version}" for name, version in public.items() if name not in TRITONS - {"triton"}
    )
    inputs = replace(stack.inputs, requirements=wanted, stack_requirements=(), index=None)
    site, house = read_site(run), Wheelhouse(cache_folder() / "wheelhouse")
    with site.transport() as transport:
        resolver = UvResolver(inputs, transport, on_line=lambda _line: None, wheelhouse=house)
        found = resolver.resolution(wanted)
        if isinstance(found, Contradiction):
            raise SystemExit(f"{stack.title}: {found.explanation}")
        others = set(found.versions) - set(public)
        demands = {one.name: one.requires for one in resolver.distributions(found, without=others)}
    if "nvidia" not in stack.title:
        foreign = {*stack.stack.foreign, "triton"}
        own = [f"{name}=={version}" for name, version in public.items() if name in TRITONS]
        kept = [one for one in demands["torch"] if name_of(one) not in foreign]
        demands["torch"] = (*(one for one in kept if not name_of(one).startswith("nvidia")), *own)
    return demands


def name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def policy_of(stack: CellStack) -> Policy:
    """The guard's policy for this stack, in the shape that `render` gives it."""
    label = Version(stack.torch).local
    return Policy(
        cell=stack.cell_ids[0],
        title=stack.title,
        protected=dict(stack.stack.versions),
        companions={
            name: f"{version}+{label}" if label else version
            for name, version in stack.paired.items()
        },
        sentinels=dict(stack.stack.foreign),
        shims=triton_shims(stack.stack.versions),
    )


def tried_both(
    project: Project,
    folder: Path,
    environments: Mapping[tuple[str, bool], Path],
    stack: CellStack,
) -> tuple[Tried, Tried]:
    read = read_project(project, folder)
    plain = tried(read, stack, environments[stack.torch, False], ())
    if plain.outcome == "failed":
        return plain, plain
    constraints = constraint_lines(policy_of(stack))
    guarded = tried(read, stack, environments[stack.torch, True], constraints, plain.without)
    return plain, guarded


def read_project(project: Project, folder: Path) -> tuple[FileRequirements, ...]:
    root = folder / project.repository
    return read_files(root, (str(root / project.files[0][0]),))


def lines_of(read: tuple[FileRequirements, ...], stack: CellStack) -> tuple[str, ...]:
    """What pip or uv are asked for: every line that is always installed and comes from an index."""
    everything = replace(stack, stack=replace(stack.stack, versions={}, answered={}, foreign={}))
    declared = tuple(one for file in read for one in file.declared)
    lines = ProjectLines(declared=declared, stack=everything).followed()
    names = everything.stack.excluded
    outside = (line.requirement for line in lines if line.name not in names)
    return tuple(dict.fromkeys(map(plain_requirement, outside)))


def tried(
    read: tuple[FileRequirements, ...],
    stack: CellStack,
    environment: Path,
    constraints: Iterable[str],
    without: tuple[str, ...] = (),
) -> Tried:
    """uv's dry run; again without the packages that have no wheel, as often as that is why."""
    lines, text = lines_of(read, stack), ""
    for _ in range(10):
        code, text = dry_run(lines, stack, environment, tuple(constraints), without)
        if code == 0:
            return judged(text, stack, without)
        more = requirers_without_wheels(text, without)
        if not more or set(more) & {*stack.stack.versions, *TRITONS}:
            break
        without += more
    return Tried(outcome="failed", without=without, reason=reason_of(text))


def dry_run(
    lines: tuple[str, ...],
    stack: CellStack,
    environment: Path,
    constraints: tuple[str, ...],
    without: tuple[str, ...],
) -> tuple[int, str]:
    with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
        for file, content in (("r", lines), ("c", constraints), ("x", without)):
            (Path(name) / f"{file}.txt").write_text("".join(f"{one}\n" for one in content))
        argv = [
            str(uv_binary()),
            "pip",
            "install",
            "--dry-run",
            "--no-config",
            "--no-build",
            "--target",
            str(environment),
            "--python-version",
            stack.python,
            "--python-platform",
            "x86_64-manylinux_2_36",
            "-r",
            "r.txt",
            "-c",
            "c.txt",
            *(("--excludes", "x.txt") if without else ()),
        ]
        try:
            done = subprocess.run(
                argv, cwd=name, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, f"no answer in {SECONDS} s"
    return done.returncode, done.stdout + done.stderr


def judged(text: str, stack: CellStack, without: tuple[str, ...]) -> Tried:
    installed: dict[str, str] = {
        canonicalize_name(name): version
        for sign, name, version in CHANGED.findall(text)
        if sign == "+"
    }
    return judged_by(installed, stack, without)


def judged_by(installed: Mapping[str, str], stack: CellStack, without: tuple[str, ...]) -> Tried:
    """Overwritten where something of the stack would be installed, or PyPI's triton over ROCm's."""
    held = stack.stack.versions
    changed = {name: version for name, version in installed.items() if name in held}
    if "rocm" in stack.title and "triton" in installed:
        changed["triton"] = installed["triton"]
    outcome = "overwritten" if changed else "intact"
    return Tried(outcome=outcome, changed=changed, without=without)


def tried_by_pip(project: Project, folder: Path, stack: CellStack, environment: Path) -> Tried:
    """pip's dry run, in a new environment with the stand-ins of the stack. A package without wheels
    gets a stand-in of its own, at a version that was asked for, and is named in `without`.
    """
    lines = lines_of(read_project(project, folder), stack)
    without: tuple[str, ...] = ()
    said = ""
    with tempfile.TemporaryDirectory(prefix="warpfront-") as name:
        place = Path(name)
        run_quietly((str(uv_binary()), "venv", "-q", "--python", PYTHON, "e"), place)
        packages = place / "e" / "lib" / f"python{PYTHON}" / "site-packages"
        shutil.copytree(environment, packages, dirs_exist_ok=True)
        (place / "r.txt").write_text("".join(f"{line}\n" for line in lines))
        for _ in range(10):
            code, said = run_quietly(PIP, place, unset_prefix="PIP_")
            if code == 0:
                report = json.loads((place / "report.json").read_text("utf-8"))
                found: dict[str, str] = {
                    canonicalize_name(one["metadata"]["name"]): one["metadata"]["version"]
                    for one in report["install"]
                }
                return judged_by(found, stack, without)
            lacking = re.search(r"No matching distribution found for ([^\s;(]+)", said)
            if lacking is None or not put_asked(packages, lacking[1], stack):
                break
            without += (lacking[1],)
    return Tried(outcome="failed", without=without, reason=reason_of(said))


def put_asked(packages: Path, text: str, stack: CellStack) -> bool:
    """A stand-in for what was asked for in vain; False where that would be of the stack itself, or
    was done before.
    """
    wanted = Requirement(text)
    versions = [one.version.removesuffix(".*") for one in wanted.specifier if one.operator != "!="]
    name = canonicalize_name(wanted.name)
    version = next((one for one in versions if wanted.specifier.contains(one)), "1")
    folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
    if name in stack.stack.versions or folder.exists():
        return False
    put_stand_in(packages, name, version, ())
    return True


def run_quietly(argv: tuple[str, ...], folder: Path, *, unset_prefix: str = "") -> tuple[int, str]:
    certificate = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE", "")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not unset_prefix or not name.startswith(unset_prefix)
    }
    environment = inherited | {"PIP_CONFIG_FILE": os.devnull}
    if certificate:
        environment["PIP_CERT"] = certificate
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=PIP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {PIP_SECONDS} s"
    return done.returncode, done.stderr


def pip_pass(projects: Iterable[Project], folder: Path, out: Path) -> None:
    """Fill `pip.json`: what plain pip would do, two runs at a time."""
    path = out / PIP_FILE
    out.mkdir(parents=True, exist_ok=True)
    done: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    with tempfile.TemporaryDirectory(prefix="warpfront-") as name, ThreadPoolExecutor(2) as pool:
        stacks = chosen_stacks()
        environments = {one.torch: stand_ins(one, Path(name), guarded=False) for one in stacks}
        futures = {
            pool.submit(tried_by_pip, project, folder, stack, environments[stack.torch]): (
                f"{project.name} {stack.torch}"
            )
            for project in projects
            for stack in stacks
            if f"{project.name} {stack.torch}" not in done
        }
        for future in as_completed(futures):
            done[futures[future]] = asdict(future.result())
            print(futures[future], done[futures[future]]["outcome"], file=sys.stderr, flush=True)
            path.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n", "utf-8")


def reason_of(text: str) -> str:
    """The reasons that uv or pip give, on one line, without this machine's paths."""
    said = " ".join(re.sub(r"[^\x20-\x7e]", " ", text).split())
    for mark in ("No solution found when resolving dependencies", " cause: ", "ERROR: "):
        said = said.rpartition(mark)[2].lstrip(": ") if mark in said else said
    return re.sub(r"(?<![\w:/])(/[\w.-]+)+", "...", said).strip()[:400]


def with_preflight(
    project: Project,
    folder: Path,
    stacks: tuple[CellStack, ...],
    found: Iterable[tuple[Tried, Tried]],
) -> list[Row]:
    preflight = examine(read_project(project, folder), stacks, Silence())
    return [
        Row(
            project=project.name,
            torch=stack.torch,
            plain=plain,
            guarded=guarded_outcome(plain, guarded),
            guarded_run=guarded,
            preflight=said_of(preflight, stack),
            unknown=tuple(
                text for text in preflight.unknown if "[" not in text or stack.title in text
            ),
        )
        for stack, (plain, guarded) in zip(stacks, found, strict=True)
    ]


def guarded_outcome(plain: Tried, guarded: Tried) -> str:
    if guarded.outcome != "failed":
        return guarded.outcome
    return "unresolved" if plain.outcome == "failed" else "refused"


def said_of(preflight: Preflight, stack: CellStack) -> tuple[str, ...]:
    return tuple(
        f"{one.level} {one.rule}{f' [{one.group}]' if one.group else ''}: {one.text}: "
        f"{one.why[stack.title]}"
        for one in preflight.findings
        if stack.title in one.why
    )


def foretold(row: Mapping[str, Any]) -> bool:
    """Whether preflight said that something always installed changes the stack."""
    return any(said.split(" ", 1)[1].startswith(KINDS) for said in row["preflight"])


def figures(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for torch in TORCHES:
        mine = [asdict(row) for row in rows if row.torch == torch]
        pip = Counter(row["pip"]["outcome"] if row["pip"] else "not tried" for row in mine)
        plain = Counter(row["plain"]["outcome"] for row in mine)
        guarded = Counter(row["guarded"] for row in mine)
        found[torch] = {
            "files": len(mine),
            "pip: intact": pip["intact"],
            "pip: overwritten": pip["overwritten"],
            "pip: unresolved": pip["failed"],
            "pip: not tried": pip["not tried"],
            "uv: intact": plain["intact"],
            "uv: overwritten": plain["overwritten"],
            "uv: unresolved": plain["failed"],
            "pip or uv: overwritten": sum(is_overwritten(row) for row in mine),
            "guarded: intact": guarded["intact"],
            "guarded: refused": guarded["refused"],
            "guarded: overwritten": guarded["overwritten"],
            "guarded: unresolved": guarded["unresolved"],
            "refused, torch would have stayed": sum(is_false_refusal(row) for row in mine),
            "... for another build of a companion": sum(
                is_false_refusal(row) and is_of_companion(row) for row in mine
            ),
            "overwritten, and preflight says so": sum(
                is_overwritten(row) and foretold(row) for row in mine
            ),
            "refused, and preflight says so": sum(
                row["guarded"] == "refused" and foretold(row) for row in mine
            ),
            "intact with both, yet preflight finds": sum(
                not is_overwritten(row) and row["guarded"] == "intact" and foretold(row)
                for row in mine
            ),
        }
    return found


def is_overwritten(row: Mapping[str, Any]) -> bool:
    """Whether pip or uv, without the guard, would replace something of the stack."""
    return any(one and one["outcome"] == "overwritten" for one in (row["plain"], row["pip"]))


def is_false_refusal(row: Mapping[str, Any]) -> bool:
    return bool(row["guarded"] == "refused" and not is_overwritten(row))


def is_of_companion(row: Mapping[str, Any]) -> bool:
    """Refused because the build of torchvision or torchaudio that fits is on the image's own index,
    which the run had not.
    """
    reason = row["guarded_run"]["reason"]
    return re.search(r"no version of torch(vision|audio)==\S+\+", reason) is not None


def table(document: Mapping[str, Any]) -> str:
    """Markdown: the figures, then one line for each project."""
    torches = document["torches"]
    lines = ["<!-- Generated by tools/corpus.py. -->", ""]
    names = list(next(iter(document["figures"].values())))
    lines += [f"| | {' | '.join(torches)} |", f"|---|{'---:|' * len(torches)}"]
    for name in names:
        counts = " | ".join(str(document["figures"][torch][name]) for torch in torches)
        lines.append(f"| {name} | {counts} |")
    lines += [
        "",
        "In each cell: what plain pip does; plain uv; the guarded image; what preflight says.",
        "",
    ]
    lines += [f"| project | {' | '.join(torches)} |", f"|---|{'---|' * len(torches)}"]
    by_project: dict[str, dict[str, Any]] = {}
    for row in document["rows"]:
        by_project.setdefault(row["project"], {})[row["torch"]] = row
    for project, rows in by_project.items():
        lines.append(f"| {project} | {' | '.join(cell(rows[torch]) for torch in torches)} |")
    lines += ["", *refusal_lines(document)]
    return "\n".join(lines) + "\n"


def cell(row: Mapping[str, Any]) -> str:
    said = "found" if foretold(row) else "unknown" if row["unknown"] else "quiet"
    pip = did(row["pip"]) if row["pip"] else "not tried"
    return f"{pip}; {did(row['plain'])}; {row['guarded']}; {said}"


def did(tried: Mapping[str, Any]) -> str:
    """The outcome, with the torch (or else the first distribution) that would have come."""
    if tried["outcome"] == "failed":
        return "unresolved"
    changed = dict(tried["changed"])
    if not changed:
        return str(tried["outcome"])
    name = "torch" if "torch" in changed else min(changed)
    return f"**{name} {changed[name]}**"


def refusal_lines(document: Mapping[str, Any]) -> list[str]:
    """The installs that the guard refuses although plain pip and uv leave torch alone, and why."""
    found = [row for row in document["rows"] if is_false_refusal(row)]
    if not found:
        return ["No install was refused where torch would have stayed."]
    lines = ["Refused although torch would have stayed:", ""]
    return lines + [
        f"* {row['project']} on {row['torch']}: {row['guarded_run']['reason'][:240]}"
        for row in found
    ]


if __name__ == "__main__":
    raise SystemExit(main())
