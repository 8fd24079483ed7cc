"""What a requirements file may ask for, and what is refused with file and line."""

from __future__ import annotations

import pytest

from warpfront.errors import LockError
from warpfront.matrix.cell import RequirementList, Source
from warpfront.wheels.core_metadata import read_requirements

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SHA256 = "ab" * 32
OUTSIDE = ("images/app/leads-out.txt", "images/app/linked", "/srv/x-1.0-py3-none-any.whl", "/srv/x")
FILE = "images/app/requirements.txt"


def read(text: str, **others: str) -> RequirementList:
    """`others` are files beside it, by the stems of their names."""
    files = {f"images/app/{name}.txt": content for name, content in others.items()}
    texts = {**files, FILE: text}
    return read_requirements(FILE, texts.__getitem__, inside=lambda path: path not in OUTSIDE)


def the_source(line: str) -> Source:
    asked = read(line)
    assert asked.requirements == ()
    (source,) = asked.sources
    return source


@pytest.mark.parametrize(
    ("line", "location", "extras"),
    [
        ("./lib", "images/app/lib", ()),
        ("-e ./lib", "images/app/lib", ()),
        ("--editable=./lib[fast,more]", "images/app/lib", ("fast", "more")),
        ("-e .", "images/app", ()),
        ("../..  # the project itself", ".", ()),
    ],
)
def test_a_folder_is_relative_to_its_file_and_editable_or_not_is_the_same(
    line: str, location: str, extras: tuple[str, ...]
) -> None:
    assert the_source(line) == Source(kind="folder", location=location, extras=extras)


def test_a_commit_is_read_in_both_ways_of_writing_it() -> None:
    wanted = Source(
        kind="git",
        location="https://example.test/lib.git",
        name="lib",
        extras=("fast",),
        subdirectory="python",
        pin=COMMIT,
    )
    url = f"git+https://example.test/lib.git@{COMMIT}"
    assert the_source(f"lib[fast] @ {url}#subdirectory=python") == wanted
    named = the_source(f"{url}#egg=lib&subdirectory=python")
    assert (named.name, named.subdirectory, named.pin) == ("lib", "python", COMMIT)


def test_a_wheel_by_its_address_has_a_hash() -> None:
    url = "https://example.test/lib-1.0%2Bcpu-py3-none-any.whl"
    source = the_source(f"{url}#sha256={SHA256}")
    assert (source.kind, source.name, source.location, source.pin) == ("wheel", "lib", url, SHA256)


@pytest.mark.parametrize("pin", ["", f"#sha256={SHA256}"])
@pytest.mark.parametrize("named", ["", "torch @ "])
def test_a_variant_by_its_address_is_refused_with_what_to_write(named: str, pin: str) -> None:
    url = "https://example.test/torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64-cu129.whl"
    with pytest.raises(LockError, match=f"{FILE}:1: torch of the variant cu129") as caught:
        read(f"{named}{url}{pin}")
    assert "write torch==2.10.0 here" in caught.value.hint
    assert "`allow_variants: [torch]`" in caught.value.hint


def test_the_order_and_the_plain_requirements_are_kept() -> None:
    text = "numpy>=2  # arrays\n./lib\neinops \\\n  >=0.8\n"
    asked = read(text)
    assert asked.requirements == ("numpy>=2", "einops>=0.8")
    assert [str(one) for one in asked.sources] == ["./images/app/lib"]


def test_an_option_behind_a_folder_is_refused_as_any_other() -> None:
    with pytest.raises(LockError, match="--no-deps is an option"):
        read("-e ./lib --no-deps")


@pytest.mark.parametrize("include", ["-r base.txt", "-rbase.txt", "--requirement=./base.txt"])
def test_what_another_file_asks_for_stands_where_it_is_included(include: str) -> None:
    asked = read(
        f"numpy\n{include}  # all of it\ntimm\n", base="einops\n-r more.txt\n", more="./lib"
    )
    assert asked.requirements == ("numpy", "einops", "timm")
    assert [str(one) for one in asked.sources] == ["./images/app/lib"]


def test_an_error_in_an_included_file_names_that_file() -> None:
    with pytest.raises(LockError, match=r"images/app/base\.txt:2: -c is an option"):
        read("-r base.txt", base="numpy\n-c x.txt")


def test_files_that_include_each_other_are_refused_with_the_circle() -> None:
    with pytest.raises(
        LockError, match=r"base.txt:1: .* -> images/app/base.txt -> images/app/requ"
    ):
        read("-r base.txt", base="-r requirements.txt")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("../../../elsewhere", "outside the project"),
        ("git+https://example.test/lib.git@main", "names no commit"),
        ("lib @ git+https://example.test/lib.git", "names no commit"),
        (f"git+ssh://example.test/lib.git@{COMMIT}", "only git"),
        (f"git+https://user:canary@example.test/lib.git@{COMMIT}", "user name or password"),
        ("https://example.test/lib-1.0-py3-none-any.whl", "no hash"),
        ("https://example.test/lib-1.0.tar.gz", "neither a wheel nor a git repository"),
        (f"lib @ git+https://e.test/l@{COMMIT} ; python_version > '3'", "with a marker"),
        (f"git+https://e.test/l@{COMMIT}#subdirectory=../up", "outside its repository"),
        ("-c more.txt", "-c is an option"),
        ("--hash=sha256:00", "--hash is an option"),
        ("numpy==2.4.6 --hash=sha256:00", "--hash is an option"),
        ("--index-url https://example.test/simple", "--index-url is an option"),
        ("--extra-index-url=https://user:canary@example.test", "--extra-index-url is an option"),
        ("-r ../../../more.txt", "outside the project"),
        ("-r /srv/more.txt", "outside the project"),
        ("-r leads-out.txt", "leads-out.txt is outside the project, or a link"),
        ("./linked", "./linked is outside the project, or a link"),
        (f"file:///srv/x-1.0-py3-none-any.whl#sha256={SHA256}", "outside the project"),
        (f"x @ git+file:///srv/x@{COMMIT}", "outside the project"),
        ("-r https://example.test/more.txt", "outside the project"),
        ("-r requirements.txt", "includes itself"),
        ("numpy>>1", "not a requirement"),
    ],
)
def test_what_cannot_be_pinned_is_refused_with_file_and_line(line: str, words: str) -> None:
    with pytest.raises(LockError, match=words) as caught:
        read(f"numpy\n{line}\n")
    assert f"{FILE}:2" in caught.value.message
    assert "canary" not in caught.value.message
