"""The CPU image, published to a real registry and checked by programs that are none of ours: docker
pulls it, cosign verifies it, oras finds what is attached.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import docker
import pytest
import requests
from bills import cyclonedx_fault, spdx_faults
from builders import make_project
from elf_images import AARCH64, elf, layer
from loopback import running
from projects import REPOSITORY, Project
from publish_kills import SOWN, Kills
from real_releases import CELL, KEY_PASSWORD, Release, digest_in, real_release
from registries import PASSWORD, USER, cosign_3, strangers_program
from releases import Quiet

from warpfront.commands.adopting import attached_making, part_here, verify_claimed
from warpfront.errors import NotPublishableError, RegistryError, RegistryFault, SignatureError
from warpfront.images.engine import docker as docker_engine
from warpfront.images.engine import embedded
from warpfront.images.engine.docker import Transfer
from warpfront.images.engine.protocol import Engine, connect
from warpfront.images.preparing import Tools
from warpfront.pipeline.verifying import CheckPlan
from warpfront.pipeline.workspace import open_workspace
from warpfront.release.ledger import CHANNEL_ANNOTATION, staged_tag
from warpfront.release.origin import KeylessIdentity
from warpfront.release.registry import client as registry_client
from warpfront.release.registry.contract import IMAGE_MANIFEST, Artifact, bytes_blob
from warpfront.release.signing import KEYLESS, find_signer
from warpfront.release.statements.predicates import BuildRecord
from warpfront.system.process import environment, run
from warpfront.system.references import read_reference
from warpfront.system.store import Store
from warpfront.verify.results import Verification
from warpfront.wheels.sources import Site
from warpfront_checks.check_options import CheckOptions

GONE = f"sha256:{'0' * 64}"
pytestmark = [pytest.mark.docker, pytest.mark.process]


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
    with real_release(tmp_path_factory.mktemp("release"), here, engine, client) as made:
        yield made


def test_the_cpu_image_is_published_and_others_can_check_it(
    release: Release, client: docker.DockerClient, tmp_path: Path
) -> None:
    foreseen = release.invoke("publish", "--dry-run")
    assert "alias latest: new" in foreseen
    said = release.invoke("publish")
    digest = digest_in(said)
    reference = f"{release.repository}@{digest}"

    release.stranger(
        "cosign",
        "verify",
        "--key",
        str(release.key.with_suffix(".pub")),
        "--insecure-ignore-tlog=true",
        "--allow-http-registry",
        reference,
    )
    attached = release.stranger("oras", "discover", "--format", "json", reference)
    types = {one["artifactType"] for one in json.loads(attached)["manifests"]}
    assert {
        "application/vnd.cyclonedx+json",
        "application/spdx+json",
        "application/vnd.in-toto+json",
        "application/vnd.warpfront.verification.v1+json",
    } <= types
    for kind in ("slsaprovenance1", "spdxjson", "cyclonedx"):
        release.stranger(
            "cosign",
            "verify-attestation",
            "--type",
            kind,
            "--allow-http-registry",
            "--key",
            str(release.key.with_suffix(".pub")),
            "--insecure-ignore-tlog=true",
            reference,
        )
    sboms = [one for one in json.loads(attached)["manifests"] if "spdx" in one["artifactType"]]
    release.stranger(
        "oras", "pull", "--output", str(tmp_path), f"{release.repository}@{sboms[0]['digest']}"
    )
    assert "SPDX-2.3" in (tmp_path / "sbom.spdx.json").read_text("utf-8")

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
    assert "attested   cyclonedx, provenance, spdx, tested" in said
    assert "x86_64: passed" in said
    assert "numpy: asked for by the image itself" in said


@pytest.fixture(scope="module")
def digest(release: Release) -> str:
    """What is published, if it was by another test."""
    return digest_in(release.invoke("publish"))


@pytest.mark.usefixtures("digest")
def test_nothing_that_is_left_has_a_password_in_it(release: Release) -> None:
    build = release.project.root / "build"
    written = [*build.rglob("*.json"), *build.rglob("*.log")]
    written += [one for one in release.registry.data.rglob("data") if one.stat().st_size < 1 << 20]
    canaries = (PASSWORD.encode(), KEY_PASSWORD.encode())
    assert len(written) > 10
    assert [path for path in written if any(one in path.read_bytes() for one in canaries)] == []


def test_somebody_elses_image_is_verified_for_what_it_says_of_itself(
    release: Release, digest: str, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a project that has no such cell: by its labels and the provenance that is attached."""
    for name in ("DOCKER_CONFIG", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, release.environment[name])
    named = read_reference(f"{release.repository}@{digest}")
    with registry_client.connect(named.host, dict(release.environment), run) as registry:
        making = attached_making(registry, named)
    assert making is not None
    workspace = open_workspace(release.project.root)
    folders = dataclasses.replace(workspace.folders, store=Store(tmp_path / "strangers"))

    def verified(said: BuildRecord | None) -> dict[str, tuple[str, str]]:
        (found,), (row,) = verify_claimed(
            named,
            said,
            CheckPlan(target="", sessions=("load",), effort=CheckOptions()),
            Tools(engine=engine, folders=folders, site=Site),
            Quiet(),
        )
        assert isinstance(found, Verification)
        assert row.lock == "not here"
        return {one.name: (str(one.outcome), one.reason) for one in found.checks}

    checks = verified(making)
    assert {name: said for name, said in checks.items() if said[0] != "passed"} == {}
    assert {"versions", "torch build", "labels and tag"} <= set(checks)
    assert "guard" not in checks
    wheels = [one for one in making.dependencies if one.uri.startswith("pkg:pypi/numpy@")]
    lie = dataclasses.replace(wheels[0], uri="pkg:pypi/numpy@0.0.1")
    checks = verified(dataclasses.replace(making, dependencies=(*making.dependencies, lie)))
    assert checks["versions"][0] == "failed"
    assert "numpy" in checks["versions"][1]


def test_what_is_attached_is_valid_and_another_engine_gets_the_whole_image(
    release: Release, digest: str, another_engine: embedded.EnginePlace
) -> None:
    """By its digest, from the registry alone: a small image, whose every layer is pulled."""
    reference = f"{release.repository}@{digest}"
    attached = release.stranger("oras", "discover", "--format", "json", reference)
    papers = {one["artifactType"]: one["digest"] for one in json.loads(attached)["manifests"]}
    for kind, faults in (
        ("application/vnd.cyclonedx+json", cyclonedx_fault),
        ("application/spdx+json", lambda text: spdx_faults(json.loads(text))),
    ):
        paper = f"{release.repository}@{papers[kind]}"
        manifest = json.loads(release.stranger("oras", "manifest", "fetch", paper))
        blob = f"{release.repository}@{manifest['layers'][0]['digest']}"
        assert not faults(release.stranger("oras", "blob", "fetch", "--output", "-", blob)), kind
    with release.small():
        content = release.renew()
        small = digest_in(release.invoke("publish", to="whole"))
    theirs = {**release.environment, "DOCKER_HOST": another_engine.host}
    name = f"{release.registry.host}/whole/torch@{small}"
    subprocess.run(("docker", "pull", "--quiet", name), env=theirs, check=True)
    asked = ("docker", "image", "inspect", "--format", "{{json .Config.Labels}}", name)
    labels = subprocess.run(asked, env=theirs, check=True, capture_output=True, text=True).stdout
    assert content in labels


@pytest.mark.exhaustive  # a gigabyte goes into an engine of its own
def test_another_engine_with_nothing_of_ours_runs_it_and_verifies_it(
    release: Release,
    digest: str,
    another_engine: embedded.EnginePlace,
    toolbox: Path,
    tmp_path: Path,
) -> None:
    """Its digest is all that somebody is told; their project knows no such cell."""
    assert toolbox.is_dir()
    reference = f"{release.repository}@{digest}"
    theirs = {**release.environment, "DOCKER_HOST": another_engine.host}
    run_it = ("docker", "run", "--rm", "--network=none", reference)
    computing = ("python", "-c", "import torch; print(torch.ones(3, 3).sum().item())")
    argv = (*run_it, *computing)
    ran = subprocess.run(argv, env=theirs, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "9.0\n"), ran.stderr
    make_project(tmp_path / "theirs")
    for named, code, said in (
        (reference, 0, "of no cell here"),
        (f"{release.repository}@{GONE}", RegistryError.exit_code, GONE),
    ):
        ended = Project(root=tmp_path / "theirs", environment=theirs).verify(
            ("load",), "--digest", named
        )
        assert (ended.code, said in ended.said) == (code, True), ended.said


def test_what_either_cosign_signed_and_attested_the_other_verifies(release: Release) -> None:
    newer = {**release.environment, "PATH": f"{cosign_3().parent}:{os.environ['PATH']}"}
    by_3 = dataclasses.replace(
        release, project=dataclasses.replace(release.project, environment=newer)
    )
    older = strangers_program("cosign")
    with release.small():
        for one, to in ((release, "two"), (by_3, "three")):
            release.renew()
            digest = digest_in(one.invoke("publish", to=to))
            reference = f"{release.registry.host}/{to}/torch@{digest}"
            key = ("--key", str(release.key.with_suffix(".pub")), "--insecure-ignore-tlog=true")
            for program in (older, cosign_3()):
                subprocess.run((str(program), "verify", *key, reference), env=newer, check=True)
                for kind in ("slsaprovenance1", "spdxjson", "cyclonedx"):
                    argv = (str(program), "verify-attestation", "--type", kind, *key, reference)
                    subprocess.run(argv, env=newer, check=True)
            promoted = by_3.invoke("release", "--promote", "trial", channel="final", to=to)
            assert digest_in(promoted) == digest


def another_machines(release: Release, tag: str) -> str:
    """The image of `aarch64`, as its publisher sends, signs and stages it: a small one, that holds
    a program for that machine. Its digest.
    """
    path, blobs = release.repository.partition("/")[2], []
    held = json.loads(
        release.stranger("oras", "manifest", "fetch-config", f"{release.repository}:{tag}")
    )
    own = json.dumps({**held, "architecture": "arm64"}).encode()
    with registry_client.connect(release.registry.host, dict(release.environment), run) as registry:
        for content in (own, layer({"usr/bin/env": elf(AARCH64)})):
            blob = bytes_blob(content)
            registry.put_blob(path, blob)
            blobs.append({"digest": blob.digest, "size": blob.size_bytes})
        kinds = (
            "application/vnd.oci.image.config.v1+json",
            "application/vnd.oci.image.layer.v1.tar",
        )
        said = [{"mediaType": kind, **blob} for kind, blob in zip(kinds, blobs, strict=True)]
        manifest = {"schemaVersion": 2, "mediaType": IMAGE_MANIFEST, "config": said[0]}
        body = json.dumps({**manifest, "layers": said[1:]}).encode()
        staged = registry.put_manifest(path, staged_tag("latest", "aarch64"), body, IMAGE_MANIFEST)
        proof = Artifact(
            artifact_type="application/vnd.warpfront.verification.v1+json",
            payload=b"{}",
            annotations={CHANNEL_ANNOTATION: "trial"},
        )
        registry.attach_all(path, staged, [proof])
    release.stranger(
        "cosign",
        "sign",
        "--yes",
        "--tlog-upload=false",
        "--allow-http-registry",
        "--key",
        str(release.key),
        f"--annotations={CHANNEL_ANNOTATION}=trial",
        f"{release.repository}@{staged.digest}",
    )
    return staged.digest


def test_an_image_of_two_machines_has_its_name_when_both_are_there(
    release: Release,
    client: docker.DockerClient,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DOCKER_CONFIG", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, release.environment[name])
    matrix = release.project.root / "matrix.yaml"
    before = matrix.read_text("utf-8")
    both = "    zip: {machine: [x86_64, aarch64], targets: [x86_64, aarch64]}\n"
    matrix.write_text(before.replace("    targets: x86_64\n    torch", f"{both}    torch"), "utf-8")
    release = dataclasses.replace(release, name="two")
    try:
        with release.small():
            content = release.renew()[:12]
            said = release.invoke("publish", to="two")
            assert "index latest waits for aarch64, which is not there" in said
            own = f"2.13.0-cpu-py3.11-{content}"
            x86_64 = release.stranger("oras", "resolve", f"{release.repository}:{own}").strip()
            aarch64 = another_machines(release, own)
            said = release.invoke("publish", to="two")
            assert "index latest of aarch64, x86_64: sha256:" in said
            latest = f"{release.repository}:latest"
            listed = json.loads(release.stranger("oras", "manifest", "fetch", latest))
            assert {
                one["platform"]["architecture"]: one["digest"] for one in listed["manifests"]
            } == {"amd64": x86_64, "arm64": aarch64}
            release.stranger(
                "cosign",
                "verify",
                "--key",
                str(release.key.with_suffix(".pub")),
                "--insecure-ignore-tlog=true",
                "--allow-http-registry",
                latest,
            )
            login = {"username": USER, "password": PASSWORD}
            pulled = client.images.pull(release.repository, tag="latest", auth_config=login)
            assert pulled.attrs["Architecture"] == "amd64"
            assert release.invoke("publish", to="two").count(": sha256:") == 1
            index = release.stranger("oras", "resolve", latest).strip()
            # `verify --digest` would leave this small image as the cell's own, which others use.
            assert part_here(f"{release.repository}@{index}", engine).digest == x86_64
            why = release.project.invoke("why", latest).expect(0).said
            assert x86_64 in why
            assert aarch64 not in why
    finally:
        matrix.write_text(before, "utf-8")


def test_an_image_goes_over_a_disk_and_back(release: Release, tmp_path: Path) -> None:
    with release.small():
        release.renew()
        digest = digest_in(release.invoke("publish", to="disk"))
        release.invoke("release", "--export", str(tmp_path / "disk"), to="disk")
        ended = release.project.invoke(
            "release",
            "--import",
            str(tmp_path / "disk"),
            "--only",
            CELL,
            "--channel",
            "trial",
            "--to",
            f"{release.registry.host}/elsewhere",
        )
    assert ended.code == 0, ended.stdout + ended.stderr
    assert digest_in(ended.stdout) == digest


def test_a_published_image_is_pulled_by_its_digest_and_no_other(
    release: Release, digest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
            "publish",
            "--channel",
            "trial",
            "--only",
            CELL,
            "--to",
            f"{release.registry.host}/gone",
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


def test_the_job_that_publishes_is_refused_where_no_ci_vouches_for_it(release: Release) -> None:
    """By the workflows' own line, which names no key: nothing is asked of the channel's registry,
    which no test may reach.
    """
    script = release.project.root / "ci" / "publish.sh"
    script.parent.mkdir()
    shutil.copy(REPOSITORY / "ci" / "publish.sh", script)
    told = {"CHANNEL": "trial", "NAME": "publish", "CELLS": CELL, "RUNNER": ""}
    known = {name: said for name, said in release.environment.items() if name != "COSIGN_KEY"}
    done = subprocess.run(
        (str(script),),
        env={**known, **told, "WARPFRONT_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == SignatureError.exit_code, done.stderr
    assert "no CI here that vouches for its job" in done.stderr


def test_a_job_with_an_identity_gets_as_far_as_fulcio(tmp_path: Path) -> None:
    """Which no test may reach: the line to it is cut. cosign has got the token for it by then, from
    where GitHub would give it.
    """
    asked: list[tuple[str, str | None]] = []
    claims = {"sub": "repo:me/mine:ref:refs/heads/main", "aud": "sigstore"}
    parts = (json.dumps(part).encode() for part in ({"alg": "RS256"}, claims))
    token = ".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts)

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers.get("Authorization")))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"value": f"{token}.c2ln"}).encode())

        def log_message(self, *_: object) -> None: ...

    with running(HTTPServer(("127.0.0.1", 0), Issuer)) as issuer:
        known = {
            "PATH": str(strangers_program("cosign").parent),
            "HTTPS_PROXY": "http://127.0.0.1:1",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"http://127.0.0.1:{issuer.server_port}/token?run=1",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "canary",
        }
        identity = KeylessIdentity(pattern="^x$", issuer="https://git.test")
        signer = find_signer(run, KEYLESS, known, tmp_path, identity=identity)
        signer = dataclasses.replace(signer, program=str(strangers_program("cosign")))
        with pytest.raises(SignatureError, match=r"could not be signed(?s:.*)Fulcio") as caught:
            signer.sign(f"127.0.0.1:1/a@{GONE}", {"a": "b"})
    assert asked == [("/token?run=1&audience=sigstore", "bearer canary")]
    assert "canary" not in str(caught.value)


def tags_in(release: Release, path: str) -> dict[str, str]:
    """Every public tag of a repository and its digest, asked for without our client."""
    return {
        name: digest
        for name, digest in names_in(release, path).items()
        if not name.startswith(("candidate-", "sha256-"))
    }


def names_in(release: Release, path: str) -> dict[str, str]:
    with requests.Session() as line:
        line.trust_env = False  # SSL_CERT_FILE of this machine would count for more
        line.auth, line.verify = (USER, PASSWORD), str(release.registry.ca)
        root = f"https://{release.registry.host}/v2/{path}"
        names = line.get(f"{root}/tags/list", timeout=20).json()["tags"] or ()
        kinds = ("image.manifest", "image.index")
        asked = {"Accept": ", ".join(f"application/vnd.oci.{one}.v1+json" for one in kinds)}
        return {
            name: line.head(f"{root}/manifests/{name}", headers=asked, timeout=20).headers[
                "Docker-Content-Digest"
            ]
            for name in names
        }


def push_candidate(release: Release, path: str, run: str) -> str:
    """What a run leaves that was killed: its tag."""
    release.renew()
    name, tag = f"{release.registry.host}/{path}", f"candidate-{run}-0123456789ab"
    release.client.images.get(release.made[-1]).tag(name, tag)
    login = {"username": USER, "password": PASSWORD}
    release.client.images.push(name, tag=tag, auth_config=login)
    release.client.images.remove(f"{name}:{tag}")
    return tag


def test_images_are_pruned_promoted_and_taken_back_in_a_real_registry(release: Release) -> None:
    to, digests, contents = "keeping", [], []
    with release.small():
        killed = push_candidate(release, f"{to}/torch", "20250101T000000-abcdef")
        for created in ("2025-01-01", "2025-02-01", "2025-03-01"):
            content = release.renew(created=f"{created}T00:00:00+00:00")
            contents.append(f"2.13.0-cpu-py3.11-{content[:12]}")
            digests.append(digest_in(release.invoke("publish", to=to)))
        oldest, older, newest = digests
        fixed = dict(zip(contents, digests, strict=True))
        aliases = ("latest", "2.13.0-cpu-py3.11")
        standing = tags_in(release, f"{to}/torch")
        assert standing == {**fixed, **dict.fromkeys(aliases, newest)}

        # The older one is where `latest` would go back to; the oldest nobody needs.
        foreseen = release.invoke("release", "--prune", "trial", "--days", "30", to=to)
        assert (oldest in foreseen, older in foreseen) == (True, False)
        assert tags_in(release, f"{to}/torch") == standing
        release.invoke("release", "--prune", "trial", "--days", "30", "--yes", to=to)
        del standing[contents[0]]
        assert tags_in(release, f"{to}/torch") == standing
        left = names_in(release, f"{to}/torch")
        assert killed not in left
        assert oldest not in left.values()
        assert not [name for name in left if oldest.removeprefix("sha256:") in name]

        changed = release.project.invoke(
            "why", f"{release.registry.host}/{to}/torch:latest", "--since", contents[1]
        )
        assert "### Wheels: no difference" in changed.expect(0).stdout
        page = (release.project.root / "build" / CELL / "tag.md").read_text("utf-8")
        assert f"torch@{older}" in page
        assert "| torch | 2.13.0+cpu |" in page.replace("\\", "")

        promoted = release.invoke("release", "--promote", "trial", channel="final", to=to)
        assert digest_in(promoted) == newest
        standing |= {"stable": newest, f"{contents[2]}-final": newest}
        assert tags_in(release, f"{to}/torch") == standing

        latest = f"{release.registry.host}/{to}/torch:latest"
        said = release.invoke("release", "--yank", latest, "--reason", "wrong sums", to=to)
        assert newest in said
        standing |= dict.fromkeys(aliases, older)
        assert tags_in(release, f"{to}/torch") == standing
        assert newest in release.invoke("release", to=to)
        again = release.project.invoke(
            "publish",
            "--channel",
            "trial",
            "--only",
            CELL,
            "--to",
            f"{release.registry.host}/{to}",
        )
        assert again.code == NotPublishableError.exit_code
        assert "it was yanked" in again.said
        assert tags_in(release, f"{to}/torch") == standing


@pytest.mark.exhaustive  # as what it judges: test_publish_kills.py
def test_the_stranger_who_judges_finds_what_is_wrong_and_no_fault_where_none_is(
    release: Release,
) -> None:
    """The oracle of `tools/publish-kills`, on a publication that is killed in its middle: as it
    is, and with each fault sown into it that the order of its steps is there to prevent.
    """
    with release.small():
        honest = Kills(release, seed=1, path="honest/torch")
        honest.oracle.proven.add(release.renew())
        child = honest.start((str(SOWN), "after-tags"))
        assert child.wait().code == -signal.SIGKILL
        assert (len(honest.oracle.tags()), honest.oracle.wrong()) == (1, [])
        honest.start().wait().expect(0)
        assert (len(honest.oracle.tags()), honest.oracle.wrong()) == (3, [])
        for fault, said in (
            ("alias-first", "is on what has no other tag"),
            ("unsigned", "verifications is signed with it"),
            ("unattested", "0 attestations of spdxjson hold for it"),
            ("unproven", "none of its 0 verifications"),
        ):
            kills = Kills(release, seed=1, path=f"{fault}/torch")
            kills.oracle.proven.add(release.renew())
            kills.start((str(SOWN), fault)).wait()
            assert [one for one in kills.oracle.wrong() if said in one], fault
