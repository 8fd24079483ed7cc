"""Logins come from docker's configuration, and from nowhere else."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from stub_registry import PASSWORD, USER, client_of, serve_registry

from warpfront.errors import CommandFailedError, RegistryError, without_secrets
from warpfront.release.registry.authorization import Credentials, Login, read_credentials
from warpfront.system.process import Command, Completed

HOST = "registry.example:5000"
BOTH = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
LOGIN = Login(user=USER, password=PASSWORD)


class Helper:
    """A docker-credential program that knows one login."""

    def __init__(self, said: str, returncode: int = 0) -> None:
        self.said, self.returncode = said, returncode
        self.commands: list[Command] = []

    def __call__(self, command: Command) -> Completed:
        self.commands.append(command)
        return Completed(command=command, returncode=self.returncode, stdout=self.said, stderr="")


KNOWN = json.dumps({"ServerURL": HOST, "Username": USER, "Secret": PASSWORD})
NOBODY = Helper("nobody asked")


def credentials(folder: Path, value: object, run: Helper = NOBODY) -> Credentials:
    (folder / "config.json").write_text(json.dumps(value))
    return read_credentials({"DOCKER_CONFIG": str(folder)}, run)


@pytest.mark.parametrize(
    "logins",
    [
        {HOST: {"auth": BOTH}},
        {f"https://{HOST}/v1/": {"auth": BOTH}},
        {HOST: {"username": USER, "password": PASSWORD}},
        {"other.example": {"auth": "eDp5"}, HOST: {"auth": BOTH}},
    ],
)
def test_a_login_that_docker_wrote_is_found(tmp_path: Path, logins: object) -> None:
    assert credentials(tmp_path, {"auths": logins}).login_for(HOST) == LOGIN


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"auths": {}},
        {"auths": None},
        {"auths": {"registry.example": {"auth": BOTH}}},
        {"auths": {f"{HOST}.evil.example": {"auth": BOTH}}},
        {"auths": {f"evil.example/{HOST}": {"auth": BOTH}}},
        {"auths": {HOST: {}}},
        {"credHelpers": {"other.example": "x"}},
    ],
)
def test_a_login_for_another_host_is_none(tmp_path: Path, value: object) -> None:
    assert credentials(tmp_path, value).login_for(HOST) is None


def test_without_a_configuration_there_is_none(tmp_path: Path) -> None:
    assert read_credentials({"HOME": str(tmp_path)}, NOBODY).login_for(HOST) is None


def test_docker_io_is_known_by_its_old_address(tmp_path: Path) -> None:
    found = credentials(tmp_path, {"auths": {"https://index.docker.io/v1/": {"auth": BOTH}}})
    assert found.login_for("docker.io") == LOGIN


@pytest.mark.parametrize("key", ["credHelpers", "credsStore"])
def test_a_helper_is_asked_before_what_is_written(tmp_path: Path, key: str) -> None:
    helper = Helper(KNOWN)
    named = {HOST: "keeper"} if key == "credHelpers" else "keeper"
    value = {key: named, "auths": {HOST: {"auth": "eDp5"}}}
    assert credentials(tmp_path, value, helper).login_for(HOST) == LOGIN
    asked = helper.commands[0]
    assert (asked.argv, asked.stdin) == (("docker-credential-keeper", "get"), HOST)
    assert asked.timeout_seconds is not None


def test_a_helpers_token_is_no_password(tmp_path: Path) -> None:
    said = json.dumps({"Username": "<token>", "Secret": "an identity token"})
    found = credentials(tmp_path, {"credsStore": "x"}, Helper(said)).login_for(HOST)
    assert found == Login(identity_token="an identity token")


def test_a_helper_that_knows_no_such_host_is_no_error(tmp_path: Path) -> None:
    helper = Helper("credentials not found in native keychain\n", returncode=1)
    assert credentials(tmp_path, {"credsStore": "x"}, helper).login_for(HOST) is None


@pytest.mark.parametrize("said", ["", "[]", '{"Username": "x"}', f"{PASSWORD} is no JSON"])
def test_what_a_helper_prints_is_never_repeated(tmp_path: Path, said: str) -> None:
    with pytest.raises(RegistryError, match="printed no login") as caught:
        credentials(tmp_path, {"credsStore": "x"}, Helper(said)).login_for(HOST)
    assert PASSWORD not in str(caught.value) + caught.value.hint


def test_a_helper_that_fails_or_is_missing_is_named(tmp_path: Path) -> None:
    def missing(command: Command) -> Completed:
        raise CommandFailedError(f"{command.argv[0]}: not found")

    failing = credentials(tmp_path, {"credsStore": "x"}, Helper("locked", returncode=2))
    with pytest.raises(RegistryError, match="docker-credential-x get: locked"):
        failing.login_for(HOST)
    with pytest.raises(RegistryError, match="docker-credential-x: not found"):
        Credentials(tmp_path / "config.json", missing).login_for(HOST)


@pytest.mark.parametrize("name", ["../../bin/sh", "x y", "-x", "x/y"])
def test_a_helper_is_a_program_of_dockers_and_no_path(tmp_path: Path, name: str) -> None:
    helper = Helper(KNOWN)
    with pytest.raises(RegistryError, match="names a helper"):
        credentials(tmp_path, {"credsStore": name}, helper).login_for(HOST)
    assert helper.commands == []


@pytest.mark.parametrize(
    "text", ["", "[]", "x", "[" * 100_000], ids=["empty", "list", "word", "deep"]
)
def test_a_configuration_that_is_none_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(RegistryError, match=r"config\.json is no JSON object"):
        read_credentials({"DOCKER_CONFIG": str(tmp_path)}, NOBODY).login_for(HOST)


def test_a_login_that_is_not_base64_is_said(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="not base64") as caught:
        credentials(tmp_path, {"auths": {HOST: {"auth": PASSWORD}}}).login_for(HOST)
    assert PASSWORD not in str(caught.value)


def test_what_is_found_is_masked_from_then_on(tmp_path: Path) -> None:
    secret = "another canary of this test alone"
    both = base64.b64encode(f"user:{secret}".encode()).decode()
    found = credentials(tmp_path, {"auths": {HOST: {"auth": both}}}).login_for(HOST)
    assert secret not in without_secrets(f"{secret} {both}")
    assert both not in without_secrets(f"{secret} {both}")
    assert secret not in repr(found)


def test_an_identity_token_is_exchanged_by_form(tmp_path: Path) -> None:
    with serve_registry(auth="bearer") as stub:
        logins = {stub.host: {"auth": "", "identitytoken": PASSWORD}}
        (tmp_path / "config.json").write_text(json.dumps({"auths": logins}))
        assert client_of(stub, tmp_path).tags("a/b") == ()
        asked = next(one for one in stub.requests if one.step == "token")
        assert asked.path == "/token", "nothing of it is in the address"
        assert not any(shown.startswith("Basic") for shown in stub.shown())


def test_no_login_is_looked_for_before_one_is_wanted(tmp_path: Path) -> None:
    helper = Helper(KNOWN)
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "x"}))
    with serve_registry() as stub:
        client = client_of(stub, tmp_path, run=helper)
        client.tags("a/b")
        assert helper.commands == []
        stub.auth = "basic"
        client.tags("a/b")
        client.tags("a/b")
        assert len(helper.commands) == 1
