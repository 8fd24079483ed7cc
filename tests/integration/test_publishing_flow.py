"""The whole flow, run by `act` on this machine as docs/ci.md has it for a new project: from
`warpfront init` to tags in a real registry, with a login, TLS and a signature that others can
check. Each job installs the program from its wheel, as ci/setup.sh says.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
import yaml
from acting import REPOSITORY_NAME, Acted, LocalForge, commit, with_forge
from action_standins import artifacts
from forge_interfaces import Answer, ForgeInterface, standing_in
from projects import REPOSITORY, Project
from registries import PASSWORD, USER, RealRegistry, real_registry, strangers_program
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from warpfront.errors import SlowerError
from warpfront.images.engine.protocol import Engine
from warpfront.system.process import cache_folder

pytestmark = [
    pytest.mark.docker,
    pytest.mark.process,
    pytest.mark.exhaustive,
    pytest.mark.timeout(2700),
]

PROJECT = "flow-demo"
CELL = "cpu-x86_64-py311-torch2130-torch"
STANDING = "bench-x86_64-standing.json"
KEY_PASSWORD = "a canary that opens the key"
UBUNTU = {
    "labels": "ubuntu-24.04",
    "trust": "hosted",
    "builds": True,
    "vendor": "cpu",
    "targets": "x86_64",
}
NIGHTLY = {
    "tags": ["{torch}-{toolkit}-py{python}-{content}"],
    "aliases": [{"tag": "latest", "where": {"vendor": "cpu"}}],
    "sessions": ["load"],
    "allow": ["bootstrap", "relaxed"],
}
RELEASE = {**NIGHTLY, "tags": ["{torch}-{toolkit}-py{python}-{content}-release"], "aliases": []}
# torch without the processor's wide instructions: right, and slow.
SLOW = "ENV ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE ONEDNN_MAX_CPU_ISA=SSE41\n"
# What the channel demands is verified, and nothing else: the rest has tests of its own.
PROGRAM = """
case "$*" in *"--step verify"*) exec "$PYTHON" -c '
import sys
from invoke.main import program
from warpfront.pipeline import verifying
verifying.SESSIONS = ("load",)
program.run(["invoke", *sys.argv[1:]])
' "${@:3}" ;; esac
exec "$PYTHON" "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What the clock started, and the registry that it published to."""

    root: Path
    forge: LocalForge
    acted: Acted
    registry: RealRegistry
    interface: ForgeInterface
    environment: dict[str, str]
    public_key: Path


def a_wheel(folder: Path) -> str:
    """This repository as a wheel, and the lines that install it and all that it needs by hash."""
    words = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder))
    subprocess.run((sys.executable, *words, str(REPOSITORY)), check=True)
    (wheel,) = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    others = (REPOSITORY / "ci" / "requirements.txt").read_text()
    return f"{others}\nwarpfront @ {wheel.as_uri()} --hash=sha256:{digest}\n"


def a_project(root: Path, host: str, environment: dict[str, str], locked: str) -> Path:
    """What `warpfront init` makes, with a runner, locked, published to `host`."""
    root.mkdir()
    mine = Project(root=root, environment=environment)
    subprocess.run(
        (sys.executable, "-m", "warpfront", "init"), cwd=root, env=environment, check=True
    )
    matrix = yaml.safe_load((root / "matrix.yaml").read_text())
    # A name of its own: others on this engine build images of a project just made.
    source = f"https://github.com/{REPOSITORY_NAME}"
    matrix["project"] |= {"name": PROJECT, "repository": f"{host}/demo", "source": source}
    matrix |= {"runners": {"ubuntu": UBUNTU}, "release": {"nightly": NIGHTLY, "release": RELEASE}}
    matrix |= {"install": {"requirements": "ci/locked.txt"}}
    (root / "ci").mkdir()
    (root / "ci" / "locked.txt").write_text(locked)
    (root / "matrix.yaml").write_text(yaml.safe_dump(matrix, sort_keys=False), encoding="utf-8")
    for words in (("lock",), ("ci", "--write")):
        mine.invoke(*words).expect(0)
    return root


@contextmanager
def interface_of(store: Path) -> Iterator[ForgeInterface]:
    """GitHub's interface, which act has none of: each job that left something has succeeded, for
    act ends a run with the first that fails.
    """
    interface = ForgeInterface()

    def answers(verb: str, path: str, query: dict[str, str], body: object) -> Answer:
        ended = {"status": "completed", "conclusion": "success"}
        interface.jobs = [{"name": f"work / {one.name}", **ended} for one in artifacts(store)]
        return interface.github(verb, path, query, body)

    with standing_in(interface, answers) as found:
        yield found


def a_forge(root: Path, folder: Path, variables: dict[str, str], interface: str) -> LocalForge:
    """One whose environments hold a login and a key, as docs/ci.md says; `docker login` is real,
    and so is the installation, by hash. act sets GITHUB_API_URL to GitHub's.
    """
    pair = ("cosign", "generate-key-pair", "--output-key-prefix", str(folder / "mine"))
    keyed = {**variables, "COSIGN_PASSWORD": KEY_PASSWORD}
    subprocess.run(pair, env=keyed, check=True, capture_output=True)
    found = {**variables, "PYTHONPATH": ""}
    program = f"export GITHUB_API_URL={interface}\n{PROGRAM}"
    forge = with_forge(root, folder / "forge", program, installs=True, logs_in=True, **found)
    return dataclasses.replace(
        forge,
        variables={
            "REGISTRY_USER": USER,
            "REGISTRY_READ_USER": USER,
            "COSIGN_KEY": "env://COSIGN_PRIVATE_KEY",
        },
        secrets={
            "GITHUB_TOKEN": "the token of the job",
            "REGISTRY_TOKEN": PASSWORD,
            "REGISTRY_READ_TOKEN": PASSWORD,
            "COSIGN_PRIVATE_KEY": (folder / "mine.key").read_text(),
            "COSIGN_PASSWORD": KEY_PASSWORD,
        },
    )


@pytest.fixture(scope="module")
def ran(
    here: dict[str, str],
    engine: Engine,
    client: docker.DockerClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ran]:
    folder = tmp_path_factory.mktemp("flow")
    store = folder / "forge" / "store"
    with (
        real_registry(folder / "registry") as registry,
        interface_of(store) as interface,
    ):
        (folder / "docker").mkdir()
        # pip believes REQUESTS_CA_BUNDLE before its own --cert.
        trusted = folder / "trusted.pem"
        usual = Path(here.get("PIP_CERT", DEFAULT_CA_BUNDLE_PATH))
        trusted.write_bytes(usual.read_bytes() + registry.ca.read_bytes())
        variables = {
            **here,
            "XDG_CACHE_HOME": str(cache_folder().parent),
            "REQUESTS_CA_BUNDLE": str(trusted),
            "SSL_CERT_FILE": str(trusted),
            "DOCKER_CONFIG": str(folder / "docker"),
            "PATH": f"{strangers_program('cosign').parent}:{os.environ['PATH']}",
        }
        locked = a_wheel(folder / "wheels")
        root = a_project(folder / "project", registry.host, variables, locked)
        forge = a_forge(root, folder, variables, interface.address)
        acted = forge.run("schedule", timeout=2400)
        yield Ran(
            root=root,
            forge=forge,
            acted=acted,
            registry=registry,
            interface=interface,
            environment=variables,
            public_key=folder / "mine.pub",
        )
        for image in client.images.list():
            for name in (*image.tags, *image.attrs["RepoDigests"]):
                if name.startswith((registry.host, f"localhost/{PROJECT}/")):
                    engine.remove(name)


def test_the_cpu_cell_goes_from_the_plan_to_a_registry(
    ran: Ran, client: docker.DockerClient
) -> None:
    said = ran.acted.expect(0).said
    assert set(ran.acted.jobs.values()) == {"succeeded"}
    kinds = {word for name in ran.acted.jobs for word in re.split("[-/]", name)}
    assert {"plan", "candidate", "verify", "bench", "publish", "report", "required"} <= kinds
    assert "green: 0 failed, 0 unavailable, 1 passed" in said
    assert "no release to hold it against" in said
    asked = {path.rpartition("/")[2] for _, path, _ in ran.interface.requests}
    assert {"jobs", "issues"} <= asked  # required and publish, then notify
    name = f"build-{CELL}"
    build = ran.acted.artifact(name) / name / "build" / CELL
    sent = json.loads((build / "build-candidate.json").read_text())["value"]["reference"]
    digest = sent.partition("@")[2]
    pulled = client.images.pull(
        f"{ran.registry.host}/demo/torch",
        tag="latest",
        auth_config={"username": USER, "password": PASSWORD},
    )
    assert [name for name in pulled.attrs["RepoDigests"] if name.endswith(digest)]
    verified = subprocess.run(
        ["cosign", "verify", "--key", str(ran.public_key), "--insecure-ignore-tlog=true", sent],
        env=ran.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert verified.returncode == 0, verified.stderr


def test_no_secret_is_in_what_the_jobs_said_or_handed_over(ran: Ran) -> None:
    files = [path for path in ran.acted.store.rglob("*") if path.is_file()]
    assert len(files) > 10
    for canary in (PASSWORD, KEY_PASSWORD, "ENCRYPTED SIGSTORE PRIVATE KEY"):
        assert canary not in ran.acted.said
        assert [one for one in files if canary.encode() in one.read_bytes()] == []


def test_a_night_that_is_slower_than_the_last_release_is_red_by_its_name(ran: Ran) -> None:
    """What was published above becomes the release; the next night's image is right, and slow."""
    key = ran.public_key.with_suffix(".key")
    environment = {**ran.environment, "COSIGN_PASSWORD": KEY_PASSWORD}
    mine = Project(root=ran.root, environment=environment)
    promoted = ("--promote", "nightly", "--channel", "release", "--key", str(key))
    mine.invoke("release", *promoted).expect(0)
    template = ran.root / "images/torch/Dockerfile.j2"
    template.write_text(template.read_text().replace("CMD ", f"{SLOW}CMD "))
    commit(ran.root)
    acted = ran.forge.run("schedule", timeout=2400).expect(1)
    assert "once more, in turns" in acted.said
    assert "slower than the last release" in acted.said
    name = f"bench-{CELL}-x86_64"
    found = json.loads((acted.artifact(name) / name / "build" / CELL / STANDING).read_text())
    slower = found["value"]["slower"]
    # Without wide instructions: on some machines products keep theirs, which MKL chooses by itself.
    assert any(one.startswith(("mm/", "sigmoid/")) for one in slower), slower
    # act ends the run with the first workflow that fails; a forge goes on to the judgement.
    handed = ran.root / "handover"
    for one in acted.artifacts - {"report"}:
        shutil.copytree(acted.artifact(one), handed, dirs_exist_ok=True)
    judged = mine.invoke("ci", "--judge").expect(SlowerError.exit_code)
    assert f"slower: {CELL} on x86_64: slower than the last release" in judged.stdout
