"""The CPU image, published to a real registry and checked by programs that are none of ours: docker
pulls it, cosign verifies it, oras finds what is attached.
"""

from __future__ import annotations

import functools
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
import requests
from real_releases import CELL, KEY_PASSWORD, Release, digest_in, real_release
from registries import PASSWORD, USER

from warpfront.errors import NotPublishableError, RegistryError, RegistryFault
from warpfront.images.engine import Engine, connect
from warpfront.images.engine import docker as docker_engine
from warpfront.images.engine.transfers import Transfer
from warpfront.system.process import environment

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


def tags_in(release: Release, path: str) -> dict[str, str]:
    """Every public tag of a repository and its digest, asked for without our client."""
    with requests.Session() as line:
        line.auth, line.verify = (USER, PASSWORD), str(release.registry.ca)
        root = f"https://{release.registry.host}/v2/{path}"
        names = line.get(f"{root}/tags/list", timeout=20).json()["tags"] or ()
        asked = {"Accept": "application/vnd.oci.image.manifest.v1+json, */*"}
        return {
            name: line.head(f"{root}/manifests/{name}", headers=asked, timeout=20).headers[
                "Docker-Content-Digest"
            ]
            for name in names
            if not name.startswith(("candidate-", "sha256-"))
        }


def test_images_are_pruned_promoted_and_taken_back_in_a_real_registry(release: Release) -> None:
    to, digests, contents = "keeping", [], []
    with release.small():
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

        promoted = release.invoke("release", "--promote", "trial", channel="final", to=to)
        assert digest_in(promoted) == newest
        standing |= {"stable": newest, f"{contents[2]}-final": newest}
        assert tags_in(release, f"{to}/torch") == standing

        latest = f"{release.registry.host}/{to}/torch:latest"
        said = release.invoke("release", "--yank", latest, "--because", "wrong sums", to=to)
        assert newest in said
        standing |= dict.fromkeys(aliases, older)
        assert tags_in(release, f"{to}/torch") == standing
        assert newest in release.invoke("release", to=to)
        again = release.project.invoke(
            *("publish", "--channel", "trial", "--only", CELL),
            *("--to", f"{release.registry.host}/{to}"),
        )
        assert again.code == NotPublishableError.exit_code
        assert "it was yanked" in again.said
        assert tags_in(release, f"{to}/torch") == standing
