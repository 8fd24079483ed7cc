"""The stand-ins for actions, held to each rule that data/actions.toml has from their source."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from action_standins import (
    ActionFailedError,
    act,
    artifact,
    artifacts,
    matches,
)

ROOT = Path(__file__).resolve().parents[3]
ACTIONS = tomllib.loads((ROOT / "src/warpfront/data/actions.toml").read_text())
RULES = {f"{action}.{rule}" for action, row in ACTIONS.items() for rule in row.get("rules", {})}
_TESTED: set[str] = set()
Test = Callable[..., None]


def rule(*names: str) -> Callable[[Test], Test]:
    """Marks the test of a rule; one that no action has is a mistake."""
    assert set(names) <= RULES, names
    _TESTED.update(names)
    return lambda test: test


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's workspace, and beside it the artifacts of its run."""
    (tmp_path / "work").mkdir()
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("GITHUB_RUN_ATTEMPT", raising=False)
    return tmp_path / "work"


@pytest.fixture
def store(here: Path) -> Path:
    return here.parent / "store"


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def upload(store: Path, name: str, path: str, **more: str) -> None:
    act("upload-artifact", store, {"name": name, "path": path, **more})


def held(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def test_each_rule_says_where_it_is_from_and_has_a_test() -> None:
    for action, row in ACTIONS.items():
        for name, one in row.get("rules", {}).items():
            assert re.fullmatch(r"[\w./-]+:\d+(-\d+)?", one["at"]), f"{action}.{name}"
            source = one.get("of", row["uses"])
            assert re.fullmatch(r"[\w-]+(/[\w-]+)+@[0-9a-f]{40}", source), f"{action}.{name}"
    assert set() == RULES - _TESTED


# --- upload-artifact ---


@rule("upload-artifact.nothing-found")
def test_an_upload_that_finds_nothing_passes_unless_it_must_not(store: Path) -> None:
    upload(store, "a", "left")
    assert artifacts(store) == []
    with pytest.raises(ActionFailedError, match="no files were found"):
        upload(store, "a", "left", **{"if-no-files-found": "error"})


@rule("upload-artifact.root")
def test_an_artifact_holds_what_is_below_its_path(here: Path, store: Path) -> None:
    write(here / "left/build-x/manifest.json")
    upload(store, "folder", "left")
    upload(store, "file", "left/build-x/manifest.json")
    assert held(artifact(store, "folder").files) == {"build-x/manifest.json"}
    assert held(artifact(store, "file").files) == {"manifest.json"}


@rule("upload-artifact.several-paths")
def test_several_paths_have_their_common_folder_as_the_top(here: Path, store: Path) -> None:
    write(here / "left/a/one")
    write(here / "left/b/two")
    upload(store, "both", "left/a\nleft/b")
    assert held(artifact(store, "both").files) == {"a/one", "b/two"}


@rule("upload-artifact.hidden", "upload-artifact.folders")
def test_hidden_files_and_empty_folders_are_left_out_and_links_followed(
    here: Path, store: Path
) -> None:
    write(here / "left/seen")
    write(here / "left/.hidden/inside")
    (here / "left/empty").mkdir()
    (here / "left/link").symlink_to("seen")
    upload(store, "a", "left")
    upload(store, "b", "left", **{"include-hidden-files": "true"})
    assert held(artifact(store, "a").files) == {"seen", "link"}
    assert held(artifact(store, "b").files) == {"seen", "link", ".hidden/inside"}
    assert not (artifact(store, "a").files / "link").is_symlink()


@rule("upload-artifact.overwrite", "upload-artifact.taken")
def test_a_name_that_is_taken_is_a_failure_or_replaced(here: Path, store: Path) -> None:
    write(here / "left/one")
    upload(store, "a", "left")
    with pytest.raises(ActionFailedError, match="is there already"):
        upload(store, "a", "left")
    write(here / "left/two")
    upload(store, "a", "left", overwrite="true")
    (only,) = artifacts(store)
    assert held(only.files) == {"one", "two"}


@rule("upload-artifact.names")
@pytest.mark.parametrize("char", ['"', ":", "<", ">", "|", "*", "?", "\r", "\n", "\\", "/"])
def test_names_with_some_characters_are_refused(char: str, here: Path, store: Path) -> None:
    write(here / "left/one")
    with pytest.raises(ActionFailedError):
        upload(store, f"a{char}b", "left")
    if char not in "\\/":
        write(here / f"left/a{char}b")
        with pytest.raises(ActionFailedError):
            upload(store, "a", "left")


# --- download-artifact ---


@pytest.fixture
def two(here: Path, store: Path) -> Path:
    """Two artifacts, each with a folder of its own name inside, as our jobs leave them."""
    for name in ("build-x", "verify-x"):
        write(here / f"left-{name}/{name}/manifest.json", name)
        upload(store, name, f"left-{name}")
    return store


def download(store: Path, **given: str) -> set[str]:
    act("download-artifact", store, {"path": "handover", **given})
    return held(Path("handover"))


@rule("download-artifact.named")
def test_a_name_that_no_artifact_has_fails(two: Path) -> None:
    assert download(two, name="build-x") == {"build-x/manifest.json"}
    with pytest.raises(ActionFailedError, match="Artifact 'build-y' not found"):
        download(two, name="build-y")


@rule("download-artifact.no-match")
def test_a_pattern_that_matches_nothing_passes(two: Path) -> None:
    act("download-artifact", two, {"path": "handover", "pattern": "plan-*"})
    assert not Path("handover").exists()


@rule("download-artifact.one-match")
def test_one_match_is_extracted_into_the_path_itself(two: Path) -> None:
    """With our folder inside: without it, its files would lie in handover/ itself."""
    assert download(two, pattern="{build-x,build-y}") == {"build-x/manifest.json"}


@rule("download-artifact.several-matches")
def test_several_matches_get_a_folder_each(two: Path) -> None:
    found = download(two, pattern="{build-x,verify-x}")
    assert found == {"build-x/build-x/manifest.json", "verify-x/verify-x/manifest.json"}


@rule("download-artifact.merged")
@pytest.mark.parametrize("pattern", ["{build-x,build-y}", "{build-x,verify-x}", "*"])
def test_merged_how_many_match_makes_no_difference(pattern: str, two: Path) -> None:
    found = download(two, pattern=pattern, **{"merge-multiple": "true"})
    assert found <= {"build-x/manifest.json", "verify-x/manifest.json"}
    assert "build-x/manifest.json" in found


@rule("download-artifact.newest")
def test_of_two_attempts_the_newer_artifact_counts(
    two: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    write(here / "again/build-x/manifest.json", "the second")
    upload(two, "build-x", "again")
    assert len([one for one in artifacts(two) if one.name == "build-x"]) == 2
    download(two, pattern="{build-x,build-y}")
    assert Path("handover/build-x/manifest.json").read_text() == "the second"


@rule("download-artifact.damaged")
def test_content_of_another_digest_fails(two: Path) -> None:
    (artifact(two, "build-x").files / "build-x/manifest.json").write_text("edited")
    with pytest.raises(ActionFailedError, match="Digest validation failed"):
        download(two, pattern="*")


@pytest.mark.parametrize(
    ("pattern", "name", "right"),
    [
        ("{build-x,verify-x}", "build-x", True),
        ("{build-x}", "build-x", False),
        ("{plan,build-*}", "build-cpu", True),
        ("!images-*", "images-build-x", False),
        ("!images-*", "build-x", True),
    ],
)
def test_patterns_match_as_minimatch_has_it(pattern: str, name: str, *, right: bool) -> None:
    assert matches(pattern, name) is right


# --- checkout ---


def git(*words: str, at: Path) -> str:
    who = ("-c", "user.name=N", "-c", "user.email=n@example.test")
    done = subprocess.run(["git", *who, *words], cwd=at, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def source(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits."""
    root = here.parent / "source"
    root.mkdir()
    git("init", "--quiet", at=root)
    for text in ("one", "two"):
        write(root / "file", text)
        git("add", "--all", at=root)
        git("commit", "--quiet", "-m", text, at=root)
    monkeypatch.setenv("SOURCE", str(root))
    monkeypatch.setenv("REMOTE", "https://example.test/me/mine")
    return root


@pytest.mark.process
@rule("checkout.depth")
@pytest.mark.parametrize(("depth", "commits"), [("", "1"), ("2", "2"), ("0", "2")])
def test_one_commit_is_fetched_unless_more_are_wanted(
    depth: str, commits: str, source: Path, here: Path, store: Path
) -> None:
    act("checkout", store, {"fetch-depth": depth} if depth else {})
    assert git("rev-list", "--count", "HEAD", at=here) == commits
    assert git("log", "-1", "--format=%ct", at=here) == git("log", "-1", "--format=%ct", at=source)


@pytest.mark.process
@rule("checkout.clean")
@pytest.mark.usefixtures("source")
def test_what_an_earlier_job_left_is_removed(here: Path, store: Path) -> None:
    act("checkout", store, {})
    write(here / "handover/build-x/manifest.json")
    write(here / "file", "edited")
    act("checkout", store, {})
    assert held(here) - {p for p in held(here) if p.startswith(".git/")} == {"file"}
    assert (here / "file").read_text() == "two"


@pytest.mark.process
@rule("checkout.credentials")
@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(("given", "left"), [({}, True), ({"persist-credentials": "false"}, False)])
def test_the_token_stays_unless_it_must_not(
    given: dict[str, str], here: Path, store: Path, *, left: bool
) -> None:
    act("checkout", store, given)
    assert ("extraheader" in (here / ".git/config").read_text()) is left


# --- the others ---


@rule("setup-python.path", "setup-python.no-cache")
def test_a_python_that_is_not_here_is_not_pretended(store: Path) -> None:
    act("setup-python", store, {"python-version": "3.11"})
    with pytest.raises(ActionFailedError, match=r"no Python 3\.99 here"):
        act("setup-python", store, {"python-version": "3.99"})


@rule("upload-pages-artifact.tar", "upload-pages-artifact.again", "deploy-pages.only-one")
def test_a_site_is_deployed_from_exactly_one_artifact(
    here: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here / "site/index.html")
    write(here / "site/.secret")
    with pytest.raises(ActionFailedError, match="0 artifacts"):
        act("deploy-pages", store, {})
    act("upload-pages-artifact", store, {"path": "site"})
    act("deploy-pages", store, {})
    with tarfile.open(artifact(store, "github-pages").files / "artifact.tar") as tar:
        assert tar.getnames() == ["index.html"]
    monkeypatch.setenv("GITHUB_RUN_ATTEMPT", "2")
    act("upload-pages-artifact", store, {"path": "site"})
    with pytest.raises(ActionFailedError, match="2 artifacts"):
        act("deploy-pages", store, {})
    # As our workflow does it: a name for each attempt.
    act("upload-pages-artifact", store, {"path": "site", "name": "github-pages-2"})
    act("deploy-pages", store, {"artifact_name": "github-pages-2"})


@rule("cosign-installer.version")
def test_the_version_of_cosign_is_the_action_s_own(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    act("cosign-installer", store, {})
    assert capsys.readouterr().out == "cosign v3.0.6\n"


def test_an_input_that_an_action_does_not_have_is_a_mistake(store: Path) -> None:
    with pytest.raises(ActionFailedError, match="no input"):
        act("download-artifact", store, {"names": "x"})


def test_jobs_that_upload_at_once_keep_every_artifact(here: Path, store: Path) -> None:
    write(here / "dist" / "a.txt")
    names = {f"build-{number}" for number in range(24)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: upload(store, name, "dist"), names))
    assert {one.name for one in artifacts(store)} == names
