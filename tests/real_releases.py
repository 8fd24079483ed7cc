"""This repository's CPU cell, verified, beside a real registry with a password and a key of cosign:
what a publication needs that nothing stands in for.

`with real_release(folder, here, engine, client) as release:` makes all of it. Within
`release.small()`, `release.renew()` puts a small image in the place of the cell's own: labels, lock
and results of the real one, a few bytes of content, so that publishing it takes seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import docker
from elf_images import X86_64, elf, layer
from projects import Project, copy_project
from registries import PASSWORD, RealRegistry, real_registry, strangers_program
from releases import Quiet

from warpfront.images.built import CREATED, REVISION, BuiltImage
from warpfront.images.engine.protocol import Engine
from warpfront.images.labels import CONTENT_HASH
from warpfront.images.preparing import CellInputs, Tools
from warpfront.matrix.selection import with_parents
from warpfront.pipeline.verifying import CheckPlan, verify_cells
from warpfront.pipeline.workspace import open_workspace
from warpfront.system.store import Store
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import outcome_of, sealed
from warpfront.wheels.lock.reading import read_locks, usable_locks
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import CheckOptions

CELL = "cpu-x86_64-py311-torch2130-torch"
TARGET = "x86_64"
KEY_PASSWORD = "a canary that opens the key"
_OF_THE_REGISTRY = ("DOCKER_CONFIG", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
CHANNEL = """
release:
  trial:
    tags: ["{torch}-{toolkit}-py{python}-{content}"]
    aliases:
      - {tag: latest, where: {vendor: cpu}}
      - {tag: "{torch}-{toolkit}-py{python}"}
    sessions: [load]
    allow: [bootstrap, relaxed]
  final:
    tags: ["{torch}-{toolkit}-py{python}-{content}-final"]
    aliases:
      - {tag: stable, where: {vendor: cpu}}
    sessions: [load]
    allow: [bootstrap, relaxed]
"""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A project whose CPU image is built and verified, a registry, and a key."""

    project: Project
    registry: RealRegistry
    key: Path
    client: docker.DockerClient
    name: str = "demo"
    made: list[str] = field(default_factory=list)

    @property
    def repository(self) -> str:
        return f"{self.registry.host}/{self.name}/torch"

    @property
    def environment(self) -> Mapping[str, str]:
        return self.project.environment

    @property
    def store(self) -> Store:
        return Store(self.project.root / "build")

    def invoke(self, task: str, *options: str, channel: str = "trial", to: str = "demo") -> str:
        where = ("--channel", channel, "--to", f"{self.registry.host}/{to}", "--only", CELL)
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

    @contextlib.contextmanager
    def small(self) -> Iterator[None]:
        """Until the end of the block, the cell's image may be `renew`ed."""
        folder = self.project.root / "build" / CELL
        names = ("build.json", f"verify-{TARGET}.json")
        kept = {name: (folder / name).read_bytes() for name in names}
        try:
            yield
        finally:
            for name, content in kept.items():
                (folder / name).write_bytes(content)

    def renew(self, *, created: str = "", failed: bool = False) -> str:
        """A small image as the cell's own, with what was proven of that, or `failed`; its content
        hash.
        """
        store, content = self.store, uuid.uuid4().hex * 2
        built: BuiltImage = store.load(CELL, "build", (BuiltImage,))
        proven: Verification = store.load(CELL, f"verify-{TARGET}", (Verification,))
        labels = self.client.images.get(built.image_id).labels
        # A build in a copy of the project, which is no repository, has no revision.
        revision = labels.get(REVISION) or "0" * 40
        said = {**labels, CONTENT_HASH: content, REVISION: revision}
        said[CREATED] = created or labels[CREATED]
        name = f"localhost/warpfront/test-release:{content[:12]}"
        image_id = self._imported(name, said)
        proof = dataclasses.replace(proven, image_id=image_id, content_hash=content)
        first, *rest = proof.checks
        outcome = Outcome.FAILED if failed else Outcome.PASSED
        checks = (dataclasses.replace(first, outcome=outcome, reason="sown"), *rest)
        proof = dataclasses.replace(proof, checks=checks)
        built = dataclasses.replace(built, image_id=image_id, content_hash=content, size_bytes=40)
        store.save(CELL, "build", built)
        store.save(CELL, f"verify-{TARGET}", sealed(proof, ended=proven.ended))
        return content

    def _imported(self, name: str, labels: Mapping[str, str]) -> str:
        made = layer({"content": labels[CONTENT_HASH].encode(), "usr/bin/env": elf(X86_64)})
        changes = [f"LABEL {json.dumps(k)}={json.dumps(v)}" for k, v in sorted(labels.items())]
        repository, _, tag = name.rpartition(":")
        self.client.api.import_image_from_data(
            made, repository=repository, tag=tag, changes=changes
        )
        self.made.append(name)
        return str(self.client.images.get(name).id)


@contextlib.contextmanager
def real_release(
    folder: Path,
    here: Mapping[str, str],
    engine: Engine,
    client: docker.DockerClient,
    cell: str = CELL,
) -> Iterator[Release]:
    root = copy_project(folder / "project")
    matrix = (root / "matrix.yaml").read_text("utf-8")
    text = matrix.partition("\n# What is published")[0] + CHANNEL
    (root / "matrix.yaml").write_text(text, encoding="utf-8")
    own = Project(root=root, environment=dict(here))
    own.invoke("build", "--locked", "--only", cell, timeout=1800).expect(0)
    verified_here(root, engine, cell)
    with real_registry(folder / "registry") as registry:
        variables = {
            **here,
            **{name: registry.environment[name] for name in _OF_THE_REGISTRY},
            "PATH": f"{strangers_program('cosign').parent}:{os.environ['PATH']}",
            "COSIGN_PASSWORD": KEY_PASSWORD,
            "COSIGN_KEY": str(folder / "mine.key"),
        }
        pair = ("cosign", "generate-key-pair", "--output-key-prefix", str(folder / "mine"))
        subprocess.run(pair, env=variables, check=True, capture_output=True)
        project = Project(root=root, environment=variables)
        release = Release(
            project=project, registry=registry, key=folder / "mine.key", client=client
        )
        try:
            yield release
        finally:
            _leave_nothing(release, engine)


def _leave_nothing(release: Release, engine: Engine) -> None:
    """What was pulled of the registry, and what was made for it."""
    for image in engine.images(CONTENT_HASH):
        for name in image.references:
            if name.startswith(release.registry.host) or name in release.made:
                engine.remove(name)


def verified_here(root: Path, engine: Engine, cell_id: str) -> None:
    """The session `load` alone, on the image that was built: what the channels demand."""
    workspace = open_workspace(root)
    cells = tuple(cell for cell in workspace.matrix.cells if cell.id == cell_id)
    chain = with_parents(cells, workspace.matrix.cells)
    verified = verify_cells(
        CellInputs(
            cells=tuple(cells),
            locks=usable_locks(read_locks(chain, workspace.folders)),
            matrix=workspace.matrix,
            material=workspace.material,
        ),
        CheckPlan(target="", sessions=("load",), effort=CheckOptions()),
        Tools(engine=engine, folders=workspace.folders, site=Site),
        Quiet(),
    )
    for found in verified:
        assert isinstance(found, Verification)
        assert outcome_of(found) is Outcome.PASSED, found.checks


def digest_in(text: str) -> str:
    (found,) = set(re.findall(r"sha256:[0-9a-f]{64}", text))
    return str(found)
