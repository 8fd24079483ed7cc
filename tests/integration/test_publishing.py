"""The CPU image, published to a real registry and checked by programs that are none of ours: docker
pulls it, cosign verifies it, oras finds what is attached.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from projects import Project, copy_project
from registries import PASSWORD, RealRegistry, real_registry, strangers_program
from releases import Quiet

from warpfront.errors import RegistryError, RegistryFault
from warpfront.images.engine import Engine, connect
from warpfront.images.engine import docker as docker_engine
from warpfront.images.engine.transfers import Transfer
from warpfront.inside.checks.effort import Effort
from warpfront.matrix.plan import with_parents
from warpfront.model import Outcome, Verification
from warpfront.pipeline.verifying import verify_cells
from warpfront.pipeline.within.locks import read_locks, usable_locks
from warpfront.pipeline.workspace import open_workspace
from warpfront.system.process import environment
from warpfront.verify.verdict import outcome_of
from warpfront.wheels.sources import Site

pytestmark = [pytest.mark.docker, pytest.mark.process]

CELL = "cpu-x86_64-py311-torch2130-torch"
KEY_PASSWORD = "a canary that opens the key"
CHANNEL = """
release:
  trial:
    tags: ["{torch}-{toolkit}-py{python}-{content}"]
    aliases:
      - {tag: latest, where: {vendor: cpu}}
      - {tag: "{torch}-{toolkit}-py{python}"}
    sessions: [load]
    allow: [bootstrap, relaxed]
"""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A project whose CPU image is built and verified, a registry, and a key."""

    project: Project
    registry: RealRegistry
    key: Path

    @property
    def repository(self) -> str:
        return f"{self.registry.host}/demo/torch"

    @property
    def environment(self) -> Mapping[str, str]:
        return self.project.environment

    def invoke(self, task: str, *options: str) -> str:
        where = ("--channel", "trial", "--to", f"{self.registry.host}/demo", "--only", CELL)
        ended = self.project.invoke(task, *where, *options)
        said = ended.stdout + ended.stderr
        assert PASSWORD not in said
        assert KEY_PASSWORD not in said
        assert ended.code == 0, said
        return ended.stdout

    def stranger(self, name: str, *arguments: str) -> str:
        argv = (str(strangers_program(name)), *arguments)
        done = subprocess.run(
            argv, env=dict(self.environment), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def verified_here(root: Path, engine: Engine) -> None:
    """The session `load` alone, on the image that was built: what the channel demands."""
    workspace = open_workspace(root)
    cells = tuple(cell for cell in workspace.matrix.cells if cell.id == CELL)
    chain = with_parents(cells, workspace.matrix.cells)
    (found,) = verify_cells(
        cells,
        usable_locks(read_locks(chain, workspace.requirements, workspace.folders)),
        {cell.id: cell for cell in chain},
        workspace.material.compat,
        workspace.folders,
        target="",
        sessions=("load",),
        effort=Effort(),
        engine=engine,
        site=Site,
        watch=Quiet(),
    )
    assert isinstance(found, Verification)
    assert outcome_of(found) is Outcome.PASSED, found.checks


@pytest.fixture(scope="module")
def release(  # noqa: PLR0917 - fixtures
    cpu_image: str,
    toolbox: Path,
    engine: Engine,
    client: docker.DockerClient,
    here: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Release]:
    assert cpu_image
    assert toolbox.is_dir()
    folder = tmp_path_factory.mktemp("release")
    root = copy_project(folder / "project")
    matrix = (root / "matrix.yaml").read_text()
    (root / "matrix.yaml").write_text(matrix.partition("\n# What is published")[0] + CHANNEL)
    Project(root=root, environment=here).invoke("build", "--locked", "--only", CELL).expect(0)
    verified_here(root, engine)
    with real_registry(folder / "registry") as registry:
        programs = f"{strangers_program('cosign').parent}:{os.environ['PATH']}"
        variables = {
            **here,
            **{name: registry.environment[name] for name in _OF_THE_REGISTRY},
            "PATH": programs,
            "COSIGN_PASSWORD": KEY_PASSWORD,
            "COSIGN_KEY": str(folder / "mine.key"),
        }
        pair = ("cosign", "generate-key-pair", "--output-key-prefix", str(folder / "mine"))
        subprocess.run(pair, env=variables, check=True, capture_output=True)
        project = Project(root=root, environment=variables)
        yield Release(project=project, registry=registry, key=folder / "mine.key")
        for name in client.images.get(cpu_image).attrs["RepoDigests"]:
            if name.startswith(registry.host):  # what the tests have pulled
                engine.remove(name)


_OF_THE_REGISTRY = ("DOCKER_CONFIG", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


def digest_in(text: str) -> str:
    (found,) = set(re.findall(r"sha256:[0-9a-f]{64}", text))
    return str(found)


def test_the_cpu_image_is_published_and_others_can_check_it(
    release: Release, client: docker.DockerClient
) -> None:
    foreseen = release.invoke("publish", "--dry-run")
    assert "alias latest: new" in foreseen
    said = release.invoke("publish")
    digest = digest_in(said)
    reference = f"{release.repository}@{digest}"

    release.stranger(
        *("cosign", "verify", "--key", str(release.key.with_suffix(".pub"))),
        *("--insecure-ignore-tlog=true", "--allow-http-registry", reference),
    )
    attached = release.stranger("oras", "discover", "--format", "json", reference)
    types = {one["artifactType"] for one in json.loads(attached)["manifests"]}
    assert {
        "application/vnd.cyclonedx+json",
        "application/spdx+json",
        "application/vnd.in-toto+json",
        "application/vnd.warpfront.verification.v1+json",
    } <= types

    again = release.invoke("publish")
    assert digest_in(again) == digest
    assert "; 0 B sent" in again

    login = json.loads((release.registry.docker_config / "config.json").read_text())
    assert login["auths"]
    image = client.images.pull(
        release.repository, tag=digest, auth_config={"username": "publisher", "password": PASSWORD}
    )
    assert image.labels["dev.warpfront.cell"] == CELL
    public = str(release.key.with_suffix(".pub"))
    why = release.project.invoke("why", f"{release.repository}:latest", "--trust", public)
    said = why.expect(0).stdout
    assert "signature  holds" in said
    assert "x86_64: passed" in said
    assert "numpy: asked for by the image itself" in said


def test_nothing_that_is_left_has_a_password_in_it(release: Release) -> None:
    release.invoke("publish")
    build = release.project.root / "build"
    written = [*build.rglob("*.json"), *build.rglob("*.log")]
    written += [one for one in release.registry.data.rglob("data") if one.stat().st_size < 1 << 20]
    canaries = (PASSWORD.encode(), KEY_PASSWORD.encode())
    assert len(written) > 10
    assert [path for path in written if any(one in path.read_bytes() for one in canaries)] == []


def test_an_image_goes_over_a_disk_and_back(release: Release, tmp_path: Path) -> None:
    digest = digest_in(release.invoke("publish"))
    release.invoke("release", "--export", str(tmp_path / "disk"))
    ended = release.project.invoke(
        *("release", "--import", str(tmp_path / "disk"), "--only", CELL),
        *("--channel", "trial", "--to", f"{release.registry.host}/elsewhere"),
    )
    assert ended.code == 0, ended.stdout + ended.stderr
    assert digest_in(ended.stdout) == digest


def test_a_published_image_is_pulled_by_its_digest_and_no_other(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = digest_in(release.invoke("publish"))
    monkeypatch.setenv("DOCKER_CONFIG", release.environment["DOCKER_CONFIG"])
    engine = connect(environment())
    pulled = engine.pull(f"{release.repository}@{digest}", lambda _done, _total: None)
    assert pulled.labels["dev.warpfront.cell"] == CELL
    gone = f"{release.repository}@sha256:{'0' * 64}"
    with pytest.raises(RegistryError) as caught:
        engine.pull(gone, lambda _done, _total: None)
    assert gone in caught.value.message


def test_a_registry_that_is_gone_is_said_with_what_next(release: Release) -> None:
    release.registry.kill()
    try:
        ended = release.project.invoke(
            *("publish", "--channel", "trial", "--only", CELL),
            *("--to", f"{release.registry.host}/gone"),
        )
    finally:
        release.registry.start()
    said = ended.stdout + ended.stderr
    assert ended.code == RegistryError.exit_code, said
    assert release.registry.host in said
    assert "hint:" in said


def test_a_registry_that_hangs_is_left(
    release: Release, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """containerd waits for ever, and says so 20 times a second."""
    monkeypatch.setattr(docker_engine, "STALL_SECONDS", 4)
    quick = functools.partial(Transfer, stall_seconds=4)
    monkeypatch.setattr(docker_engine, "Transfer", quick)
    image = engine.image("localhost/warpfront/torch:2.13.0-cpu-py3.11")
    assert image is not None
    reference = f"{release.registry.host}/hung/torch:candidate"
    engine.tag(image.id, reference)
    release.registry.send(signal.SIGSTOP)
    try:
        with pytest.raises(RegistryError) as caught:
            engine.push(reference, lambda _done, _total: None)
    finally:
        release.registry.send(signal.SIGCONT)
        engine.remove(reference)
    assert caught.value.fault in {RegistryFault.SLOW, RegistryFault.UNREACHABLE}
