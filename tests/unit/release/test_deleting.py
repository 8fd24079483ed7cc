"""Deleting where DELETE is not to be had: by GitHub's API, by Docker Hub's, or not at all, which is
found before anything is deleted.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fakes import FakeRegistry
from registry_apis import DockerHubStandIn, GitHubStandIn, serve_api

from warpfront.errors import RegistryError, RegistryFault
from warpfront.release.registry import deleting
from warpfront.release.registry.contract import IMAGE_MANIFEST, digest_of_bytes
from warpfront.release.registry.deleting import Delete, deleter_for
from warpfront.release.registry.http import Patience
from warpfront.system.process import Command, Completed

BODIES = (b"{}", b"[]")
ONE, OTHER, GONE = (digest_of_bytes(body) for body in (*BODIES, b""))


def no_program(command: Command) -> Completed:
    raise AssertionError(command)


def asked(registry: FakeRegistry, path: str, **environment: str) -> Delete:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(deleting, "Patience", partial(Patience, sleep=lambda _: None))
        return deleter_for(registry, (path,), environment, no_program)


def logged_in(folder: Path, host: str, user: str, password: str) -> str:
    """A folder for DOCKER_CONFIG."""
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))
    return str(folder)


def test_a_registry_that_deletes_is_asked_itself() -> None:
    registry = FakeRegistry()
    registry.manifests["demo/torch", ONE] = (b"{}", IMAGE_MANIFEST)
    asked(registry, "demo/torch")("demo/torch", ONE, ())
    assert registry.manifests == {}


def test_where_nothing_deletes_the_error_says_what_to_do_before_anything_is_deleted() -> None:
    registry = FakeRegistry(may_delete=False)
    with pytest.raises(RegistryError, match=r"405.*nothing was removed") as caught:
        asked(registry, "demo/torch")
    assert caught.value.fault is RegistryFault.REFUSED
    assert "storage.delete.enabled" in caught.value.hint
    assert registry.calls == []


# --- GHCR ---


@pytest.fixture
def github() -> Iterator[tuple[GitHubStandIn, str]]:
    stand_in = GitHubStandIn(
        versions={number: (f"sha256:{number:064}", []) for number in range(150)}
        | {200: (ONE, ["v1"]), 201: (OTHER, ["v2", "latest"])}
    )
    with serve_api(stand_in) as address:
        yield stand_in, address


def ghcr(github: tuple[GitHubStandIn, str], **environment: str) -> Delete:
    known = {"GITHUB_API_URL": github[1], "GH_TOKEN": github[0].token, **environment}
    registry = FakeRegistry(host="ghcr.io", may_delete=False)
    return asked(registry, "me/demo/torch", **known)


@pytest.mark.parametrize("kind", ["Organization", "User"])
def test_a_digest_of_ghcr_is_deleted_as_a_version_of_its_package(
    github: tuple[GitHubStandIn, str], kind: str
) -> None:
    github[0].kind = kind
    delete = ghcr(github)
    assert not any(one.startswith("DELETE") for one in github[0].requests)
    delete("me/demo/torch", ONE, ("v1",))
    delete("me/demo/torch", GONE, ())
    delete("me/demo/torch", f"sha256:{149:064}", ())
    assert {200, 149} & set(github[0].versions) == set()
    deleted = [one for one in github[0].requests if one.startswith("DELETE")]
    owner = "orgs" if kind == "Organization" else "users"
    assert deleted[0] == f"DELETE /{owner}/me/packages/container/demo%2Ftorch/versions/200"
    assert len(deleted) == 2, "what is not listed is not deleted"


def test_dockers_login_serves_where_no_token_is_named(
    github: tuple[GitHubStandIn, str], tmp_path: Path
) -> None:
    folder = logged_in(tmp_path, "ghcr.io", "me", github[0].token)
    ghcr(github, GH_TOKEN="", DOCKER_CONFIG=folder)("me/demo/torch", ONE, ())
    assert 200 not in github[0].versions


def test_without_a_token_or_without_its_rights_nothing_is_deleted(
    github: tuple[GitHubStandIn, str], tmp_path: Path
) -> None:
    nowhere = str(tmp_path)
    with pytest.raises(RegistryError, match="for a token only; nothing was removed") as caught:
        ghcr(github, GH_TOKEN="", DOCKER_CONFIG=nowhere)
    assert "delete:packages" in caught.value.hint
    with pytest.raises(RegistryError, match="401"):
        ghcr(github, GH_TOKEN="another token")
    github[0].may_delete = False
    with pytest.raises(RegistryError, match="Package not found") as caught:
        ghcr(github)
    assert "admin rights" in caught.value.hint
    assert not any(one.startswith("DELETE") for one in github[0].requests)


def test_the_last_tagged_version_stays_with_what_to_do(github: tuple[GitHubStandIn, str]) -> None:
    del github[0].versions[201]
    with pytest.raises(RegistryError, match="last tagged version") as caught:
        ghcr(github)("me/demo/torch", ONE, ("v1",))
    assert "publish another image first" in caught.value.hint
    assert 200 in github[0].versions


# --- Docker Hub ---


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerHubStandIn]:
    stand_in = DockerHubStandIn(tags={("me/torch", tag) for tag in ("v1", "latest", "v2")})
    with serve_api(stand_in) as address:
        monkeypatch.setattr(deleting, "_HUB", address)
        yield stand_in


def hub_registry() -> FakeRegistry:
    registry = FakeRegistry(host="docker.io", may_delete=False)
    for body, tags in zip(BODIES, (("v1",), ("v2", "latest")), strict=True):
        digest = digest_of_bytes(body)
        registry.manifests["me/torch", digest] = (body, IMAGE_MANIFEST)
        registry.tagged |= {("me/torch", tag): digest for tag in tags}
    return registry


def test_the_tags_of_a_digest_are_deleted_on_docker_hub_and_no_tag_that_moved_on(
    hub: DockerHubStandIn, tmp_path: Path
) -> None:
    folder = logged_in(tmp_path, "https://index.docker.io/v1/", hub.user, hub.secret)
    delete = asked(hub_registry(), "me/torch", DOCKER_CONFIG=folder)
    assert len(hub.tags) == 3
    delete("me/torch", ONE, ("v1", "latest", "gone"))
    assert hub.tags == {("me/torch", "v2"), ("me/torch", "latest")}


def test_an_access_token_that_expired_is_asked_for_again(
    hub: DockerHubStandIn, tmp_path: Path
) -> None:
    folder = logged_in(tmp_path, "docker.io", hub.user, hub.secret)
    hub.expires_after = 1
    delete = asked(hub_registry(), "me/torch", DOCKER_CONFIG=folder)
    delete("me/torch", OTHER, ("v2", "latest"))
    assert (hub.tags, len(hub.tokens)) == ({("me/torch", "v1")}, 2)


@pytest.mark.parametrize("password", ["", "another secret of nobody"])
def test_without_a_login_that_hub_takes_nothing_is_deleted(
    hub: DockerHubStandIn, tmp_path: Path, password: str
) -> None:
    folder = logged_in(tmp_path, "docker.io", hub.user if password else "", password)
    with pytest.raises(RegistryError) as caught:
        asked(hub_registry(), "me/torch", DOCKER_CONFIG=folder)
    assert caught.value.fault is RegistryFault.REFUSED
    assert len(hub.tags) == 3
    assert "canary" not in str(caught.value)
