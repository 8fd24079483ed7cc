"""A forge on this machine: `act` runs workflows without containers, on stand-ins for the actions
that they use. A job has a copy of the repository and nothing else of the jobs before it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import action_standins

from warpfront.ci.template_files import pinned_actions
from warpfront.system.process import cache_folder

REPOSITORY_NAME = "me/mine"
ACT = Path(sys.executable).parent / "act"
_ENDED = re.compile(r"^\[[^/\]]+/(?P<job>[^\]]+?) *\] 🏁  Job (?P<how>\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """A run: its exit code, all that was printed, and the store of artifacts that it left."""

    code: int
    said: str
    store: Path

    def artifact(self, name: str) -> Path:
        """What the newest artifact of a name holds."""
        return action_standins.artifact(self.store, name).files

    @property
    def outputs(self) -> dict[str, str]:
        """What the plan gave to the other jobs."""
        found = re.findall(r"::set-output:: ([\w-]+)=(.*)$", self.said, re.MULTILINE)
        return dict(found)

    @property
    def artifacts(self) -> set[str]:
        return {one.name for one in action_standins.artifacts(self.store)}

    @property
    def jobs(self) -> dict[str, str]:
        """Job -> how it ended."""
        return {one["job"]: one["how"] for one in _ENDED.finditer(self.said)}

    def expect(self, code: int) -> Acted:
        assert self.code == code, f"exit code {self.code}\n{self.said[-8000:]}"
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalForge:
    """A repository with workflows, and the `program` that its entry points call. `secrets` and
    `variables` are what the repository and its environments hold.
    """

    root: Path
    folder: Path
    program: Path
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    secrets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def run(
        self,
        event: str,
        payload: object | None = None,
        timeout: float = 240,
        *,
        attempt: int = 1,
        workflow: str = "warpfront",
    ) -> Acted:
        """What an event starts of one workflow: act knows no types of events. An `attempt` after
        the first finds the artifacts of those before it, as a run does that is started again.
        """
        store = self.folder / "store"
        if attempt == 1:
            shutil.rmtree(store, ignore_errors=True)
        store.mkdir(parents=True, exist_ok=True)
        file = self.folder / "event.json"
        file.write_text(json.dumps(payload or {}), encoding="utf-8")
        asked = [str(ACT), event, "--eventpath", str(file), "--action-offline-mode"]
        asked += ["--no-skip-checkout", "--workflows", f".github/workflows/{workflow}.yml"]
        asked += [f"--platform={label}=-self-hosted" for label in _labels(self.root)]
        jobs = {
            "WARPFRONT_PYTHON": str(self.program),
            "GITHUB_REF_PROTECTED": "true",  # act does not know it
            "GITHUB_RUN_ATTEMPT": str(attempt),
            # The machine's own cache, which has its engine's programs; act's is another.
            **_of_jobs(
                {"XDG_CACHE_HOME": str(cache_folder().parent), **os.environ, **self.environment}
            ),
        }
        asked += [f"--env={name}={text}" for name, text in jobs.items()]
        asked += [f"--var={name}={text}" for name, text in self.variables.items()]
        # In a file: jobs have the environment of act itself.
        hidden = self.folder / "secrets.yml"
        hidden.write_text(json.dumps(dict(self.secrets)), encoding="utf-8")
        asked += ["--secret-file", str(hidden)]
        asked += self._stubs(store)
        own = {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")}
        with _without_queues(self.root):
            ran = subprocess.run(
                asked,
                cwd=self.root,
                env={**os.environ, **self.environment, **own},
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        return Acted(code=ran.returncode, said=ran.stdout + ran.stderr, store=store)

    def run_again(self, event: str, payload: object | None, first: Acted, *failed: str) -> Acted:
        """Run again what failed: the plan and what succeeded stay as they are, and of the works
        those that are named `failed` run, with `report` and `required` after them. act cannot do
        it: the plan says here what it said, without the works that are done.
        """
        outputs = {
            name: json.dumps(
                [
                    {**shard, "jobs": [job for job in shard["jobs"] if job["name"] in failed]}
                    for shard in json.loads(text)
                    if any(job["name"] in failed for job in shard["jobs"])
                ]
            )
            if text.startswith("[")
            else text
            for name, text in first.outputs.items()
        }
        said = self.folder / "outputs-again"
        said.write_text("".join(f"{name}={text}\n" for name, text in outputs.items()))
        plan = self.folder / "plan-again"
        shutil.rmtree(plan, ignore_errors=True)
        shutil.copytree(first.artifact("plan"), plan)
        again = self.folder / "program-again"
        keeps = f'cat {said} >>"$GITHUB_OUTPUT"; mkdir left; cp -r {plan}/. left/; exit 0'
        again.write_text(
            f'#!/bin/bash\ncase "$*" in *--plan*) {keeps} ;; esac\nexec {self.program} "$@"\n'
        )
        again.chmod(0o755)
        return dataclasses.replace(self, program=again).run(event, payload, attempt=2)

    def _stubs(self, store: Path) -> list[str]:
        words = []
        for name, (uses, _) in pinned_actions().items():
            folder = self.folder / "actions" / name
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(_action(name, store, self.root))
            (folder / "action.yml").write_text(text, encoding="utf-8")
            place, _, commit = uses.partition("@")
            words += ["--local-repository", f"{place}@{commit}={folder}"]
        return words


@contextlib.contextmanager
def _without_queues(root: Path) -> Iterator[None]:
    """act has no `concurrency.queue` and refuses it. Jobs have the files as they are committed."""
    texts = {path: path.read_text() for path in (root / ".github/workflows").glob("*.yml")}
    try:
        for path, text in texts.items():
            path.write_text(re.sub(r"^ +queue: max\n", "", text, flags=re.MULTILINE))
        yield
    finally:
        for path, text in texts.items():
            path.write_text(text)


def _of_jobs(environment: Mapping[str, str]) -> dict[str, str]:
    """What a machine says to the jobs that it runs: where its engine, cache and indexes are."""
    names = ("DOCKER_", "PIP_", "UV_", "XDG_", "PYTHONPATH", "SSL_", "BUILDX_", "REQUESTS_", "PATH")
    return {name: text for name, text in environment.items() if name.startswith(names)}


def _action(name: str, store: Path, root: Path) -> dict[str, object]:
    """The stand-in of an action: tests/action_standins.py, given what the workflow gives."""
    script = Path(action_standins.__file__)
    step: dict[str, object] = {"shell": "bash", "run": "true"}
    if name in action_standins.ACTIONS:
        step["run"] = f"{sys.executable} {script} {name} {store}"
        remote = f"https://github.com/{REPOSITORY_NAME}"
        step["env"] = {"GIVEN": "${{ toJSON(inputs) }}", "SOURCE": str(root), "REMOTE": remote}
    inputs = action_standins.INPUTS.get(name, {})
    return {
        "name": name,
        "inputs": {key: {"required": False, "default": text} for key, text in inputs.items()},
        "runs": {"using": "composite", "steps": [step]},
    }


def _labels(root: Path) -> set[str]:
    """Every label that a workflow names, also in an expression that chooses one."""
    text = "".join(path.read_text() for path in (root / ".github/workflows").glob("*.yml"))
    places = re.findall(r"^    runs-on: (.+)$", text, re.MULTILINE)
    chosen = {label for one in places for label in re.findall(r'"([^"]+)"', one)}
    return chosen | {one for one in places if re.fullmatch(r"\S+", one)}


def with_forge(
    root: Path,
    folder: Path,
    program: str,
    *,
    installs: bool = False,
    logs_in: bool = False,
    **environment: str,
) -> LocalForge:
    """Everything committed, as it was written. `program` is a shell script in the place of Python;
    `$PYTHON` is the real one: what each job `installs` as ci/setup.sh says, or else this one, and
    nothing is installed. `docker login` is real if it `logs_in`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script, python = folder / "program", ".venv/bin/python" if installs else sys.executable
    script.write_text(f"#!/bin/bash\nset -e\nPYTHON={python}\n{program}")
    script.chmod(0o755)
    programs = _programs(folder / "bin", installs=installs, logs_in=logs_in)
    with (root / ".gitignore").open("a") as file:
        file.write("/output*\n" if installs else "/output*\n/build/\n/handover/\n/.venv/\n")
    commit(root)
    path = f"{programs}:{environment.get('PATH', os.environ['PATH'])}"
    return LocalForge(
        root=root, folder=folder, program=script, environment={**environment, "PATH": path}
    )


_INSTALLS = """\
#!/bin/sh
case "$*" in "-m venv .venv") mkdir -p .venv/bin; ln -sf /bin/true .venv/bin/python ;; esac
"""


def _programs(folder: Path, *, installs: bool, logs_in: bool) -> Path:
    """What stands in front of a job's programs: a python3 that makes empty environments, if nothing
    is installed, and a docker that knows nobody.
    """
    folder.mkdir(exist_ok=True)
    python = Path(sys.base_prefix) / "bin" / "python3"
    scripts = {"python3": f'#!/bin/sh\nexec {python} "$@"\n' if installs else _INSTALLS}
    if not logs_in:
        real = shutil.which("docker") or "/bin/false"
        scripts["docker"] = f'#!/bin/sh\n[ "$1" = login ] || exec {real} "$@"\n'
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def commit(root: Path) -> str:
    """Everything in `root`, as the newest commit."""
    who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.test")
    if not (root / ".git").exists():
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main"], cwd=root, check=True)
        where = ("git", "remote", "add", "origin", f"https://github.com/{REPOSITORY_NAME}")
        subprocess.run(where, cwd=root, check=True)
    for words in (("add", "--all"), (*who, "commit", "--quiet", "-m", "x")):
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, check=True, capture_output=True, text=True
    )
    return head.stdout.strip()
