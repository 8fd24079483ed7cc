"""docs/ci.md, "From a fork to a green run", done to the letter in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from acting import REPOSITORY_NAME, LocalForge, with_forge
from projects import REPOSITORY

PAGE = (REPOSITORY / "docs" / "ci.md").read_text("utf-8")
_BLOCK = re.compile(r"^( *)```(console|yaml)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
WARPFRONT = "https://github.com/warpfront/warpfront"
MINE = f"https://github.com/{REPOSITORY_NAME}"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REAL = 'exec "$PYTHON" "$@"\n'


@dataclass(frozen=True, kw_only=True)
class Block:
    kind: str
    text: str


def blocks(heading: str) -> list[Block]:
    """The fenced blocks below a heading of the page, without their indentation."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [(kind, textwrap.dedent(text)) for _, kind, text in _BLOCK.findall(section)]
    return [Block(kind=kind, text=text) for kind, text in found]


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A folder in which the page is followed, with GitHub's repositories as bare ones below it."""

    folder: Path
    environment: dict[str, str]

    @property
    def root(self) -> Path:
        return self.folder / "mine"

    def follow(self, block: Block) -> str:
        """Do what a block says; what its commands printed."""
        if block.kind == "yaml":
            self.amend(yaml.safe_load(block.text.replace(COMMIT, head())))
            return ""
        lines = block.text.splitlines()
        assert all(line.startswith("$ ") for line in lines), lines
        at = self.root if self.root.exists() else self.folder
        done = subprocess.run(
            ["bash", "-euc", "\n".join(line.removeprefix("$ ") for line in lines)],
            cwd=at,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def amend(self, more: dict[str, object]) -> None:
        """Put keys into matrix.yaml, those of a table into the table that is there."""
        path = self.root / "matrix.yaml"
        matrix = yaml.safe_load(path.read_text())
        for key, value in more.items():
            there = matrix.get(key)
            matrix[key] = {**there, **value} if isinstance(there, dict) else value  # type: ignore[dict-item]
        path.write_text(yaml.safe_dump(matrix, sort_keys=False))


def head() -> str:
    words = ("git", "rev-parse", "HEAD")
    done = subprocess.run(words, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def a_walk(tmp_path: Path) -> Walk:
    """The two addresses that the page names are repositories of this machine."""
    bare = tmp_path / "github" / "mine.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(bare)], check=True)
    places = {WARPFRONT: REPOSITORY.as_uri(), MINE: bare.as_uri()}
    git = {"GIT_CONFIG_COUNT": str(len(places))}
    for number, (address, place) in enumerate(places.items()):
        git[f"GIT_CONFIG_KEY_{number}"] = f"url.{place}.insteadOf"
        git[f"GIT_CONFIG_VALUE_{number}"] = address
    for name in ("AUTHOR", "COMMITTER"):
        git |= {f"GIT_{name}_NAME": "Me", f"GIT_{name}_EMAIL": "me@example.test"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return Walk(folder=tmp_path, environment={**os.environ, **git, "PATH": path})


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return a_walk(tmp_path)


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Walk, list[str]]:
    """Every block, in the order of the page, and what each printed."""
    walk = a_walk(tmp_path_factory.mktemp("page"))
    return walk, [walk.follow(block) for block in blocks("From a fork to a green run")]


@pytest.mark.process
def test_the_page_can_be_followed_to_a_second_push(followed: tuple[Walk, list[str]]) -> None:
    walk, printed = followed
    assert "1 to build, 1 to verify, 0 unchanged" in printed[2]
    assert "0 to build, 0 to verify, 1 unchanged" in printed[3]
    bare = walk.folder / "github" / "mine.git"
    pushed = subprocess.run(
        ["git", "--git-dir", str(bare), "ls-tree", "-r", "--name-only", "first"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    wanted = {"README.md", "ci/requirements.txt", ".github/workflows/warpfront.yml"}
    assert wanted <= set(pushed)
    assert f"@{head()}" in (walk.root / "ci/setup.sh").read_text()


@pytest.mark.process
def test_each_table_of_the_page_is_one_that_workflows_are_written_from(
    followed: tuple[Walk, list[str]],
) -> None:
    """The machines, and what else goes into matrix.yaml."""
    walk, _ = followed
    (table,) = [one for one in blocks("The machines") if one.kind == "yaml"]
    walk.follow(table)
    said = walk.follow(Block(kind="console", text="$ warpfront ci write\n$ warpfront ci check"))
    assert "wrote ci/kubernetes/mi300.values.yaml" in said


@pytest.mark.process
def test_a_page_that_says_what_cannot_be_done_fails(walk: Walk) -> None:
    walk.follow(blocks("From a fork to a green run")[0])
    with pytest.raises(AssertionError, match="has no `runners:`"):
        walk.follow(Block(kind="console", text="$ warpfront ci write"))


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) < 250


def test_each_test_that_the_page_of_tests_names_is_there() -> None:
    page = (REPOSITORY / "docs" / "results" / "ci-tests.md").read_text("utf-8")
    named = set(re.findall(r"`(test_\w+)`", page))
    files = (REPOSITORY / "tests").rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}
    assert len(named) > 15
    assert named - there == set()


def pull_request(base: str) -> dict[str, object]:
    repository = {"full_name": REPOSITORY_NAME}
    asked = {"number": 1, "base": {"sha": base}, "head": {"repo": repository}, "labels": []}
    return {"pull_request": asked, "repository": repository}


@pytest.mark.docker
@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
def test_both_pull_requests_of_the_page_are_green(walk: Walk, here: dict[str, str]) -> None:
    """Each job installs the program as the page says: what it needs by hash, then the commit."""
    *first, readme = blocks("From a fork to a green run")
    for block in first:
        walk.follow(block)
    environment = {**here, **walk.environment, "PYTHONPATH": ""}
    forge: LocalForge = with_forge(
        walk.root,
        walk.folder / "forge",
        REAL,
        installs=True,
        **environment,  # type: ignore[arg-type]
    )
    ran = forge.run("pull_request", pull_request(""), timeout=2400).expect(0)
    assert set(ran.jobs.values()) == {"succeeded"}
    kinds = {word for name in ran.jobs for word in re.split("[-/]", name)}
    assert {"plan", "build", "verify", "report", "required"} <= kinds
    assert "green: 0 failed, 0 unavailable, 1 passed" in ran.said
    base = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=walk.root, check=True, capture_output=True, text=True
    ).stdout.strip()
    walk.follow(Block(kind="console", text=readme.text))
    ran = forge.run("pull_request", pull_request(base), timeout=600).expect(0)
    assert set(ran.jobs) == {"plan", "report", "required"}
    assert "green: 0 failed" in ran.said
