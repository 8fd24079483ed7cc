"""References are read to the letter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import InputError
from warpfront.system.references import (
    Reference,
    address_of,
    fallback_tag,
    is_loopback,
    read_reference,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "host", "repository", "tag", "digest"),
    [
        ("ghcr.io/a/b:1.2-x_y", "ghcr.io", "a/b", "1.2-x_y", ""),
        (f"ghcr.io/a@{DIGEST}", "ghcr.io", "a", "", DIGEST),
        (f"localhost/a:b@{DIGEST}", "localhost", "a", "b", DIGEST),
        ("127.0.0.1:5000/a__b/c-d.e", "127.0.0.1:5000", "a__b/c-d.e", "", ""),
        ("[::1]:5000/a", "[::1]:5000", "a", "", ""),
        ("host:80/a:" + "t" * 128, "host:80", "a", "t" * 128, ""),
    ],
)
def test_a_reference_is_its_parts(
    text: str, host: str, repository: str, tag: str, digest: str
) -> None:
    found = read_reference(text)
    assert found == Reference(host=host, repository=repository, tag=tag, digest=digest)
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "python",
        "python:3.11",
        "library/python:3.11",
        "ghcr.io",
        "ghcr.io/",
        "ghcr.io/A",
        "ghcr.io/a/../b",
        "ghcr.io/a//b",
        "ghcr.io/a/./b",
        "ghcr.io/a:",
        "ghcr.io/a:../x",
        "ghcr.io/a:-x",
        "ghcr.io/a:" + "t" * 129,
        "ghcr.io/a:x\n",
        "ghcr.io/a@",
        "ghcr.io/a@sha256:../../x",
        "ghcr.io/a@sha256:" + "A" * 64,
        "ghcr.io/a@sha256:" + "a" * 63,
        "ghcr.io/a@sha512:" + "a" * 128,
        f"ghcr.io/a@{DIGEST}@{DIGEST}",
        "https://ghcr.io/a",
        "user@ghcr.io/a",
        "ghcr.io:port/a",
        "ghcr.io/" + "a" * 256,
        "ghcr.io/a\u0131:x",
        "ghcr.io/a?x=y",
        "ghcr.io/a%2f:x",
        "-x.io/a",
    ],
)
def test_what_is_no_reference_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(InputError, match="is no image reference") as caught:
        read_reference(text)
    assert "registry.example/repository:tag" in caught.value.hint


@given(st.text(max_size=60))
def test_no_text_becomes_more_than_its_parts(text: str) -> None:
    try:
        found = read_reference(text)
    except InputError:
        return
    assert str(found) == text
    assert not set(f"{found.repository}{found.tag}") & set("%?#\\ \n\r@:")
    assert ".." not in found.repository.split("/")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:5000", "127.0.0.1", "127.8.9.1:80", "[::1]:5"]
)
def test_this_machine_is_known_by_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["localhost.example", "127.0.0.1.example:80", "128.0.0.1", "1270.0.0.1", "::1", "x:127.0.0.1"],
)
def test_and_by_no_others(host: str) -> None:
    assert not is_loopback(host)


def test_docker_io_answers_elsewhere() -> None:
    assert address_of("docker.io") == "registry-1.docker.io"
    assert address_of("ghcr.io") == "ghcr.io"


def test_the_fallback_tag_of_a_digest_is_one() -> None:
    assert fallback_tag(DIGEST) == DIGEST.replace(":", "-")
    assert read_reference(f"ghcr.io/a:{fallback_tag(DIGEST)}").tag == fallback_tag(DIGEST)
