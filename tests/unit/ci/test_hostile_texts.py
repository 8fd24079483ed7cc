"""Text of others in matrix.yaml never becomes a command of a generated workflow: it is refused, or
it is one value of the YAML that a forge reads.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import make_project
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from warpfront.commands.workflows import ci_files
from warpfront.errors import WarpfrontError
from warpfront.pipeline.workspace import open_workspace

MARK = "pwned"
MATRIX: dict[str, Any] = {
    "install": {
        "wheel": "https://example.test/warpfront-0.1.0-py3-none-any.whl", "sha256": "ab" * 32,
    },
    "project": {
        "name": "mine", "source": "https://github.com/me/mine", "licenses": "Apache-2.0",
        "repository": "ghcr.io/me", "branch": "main", "release_tags": "v",
    },
    "ci": {"unchecked": "listed", "notify": ["issue", "webhook"]},
    "release": {"nightly": {"tags": ["{torch}-{content}"], "repository": "ghcr.io/me/mine"}},
    "runners": {
        "ubuntu": {
            "labels": ["ubuntu-24.04"], "trust": "hosted", "builds": True, "vendor": "cpu",
            "targets": "x86_64", "machine": "x86_64", "bench": "tiny", "max_slower": "5%",
        },
        "h100": {
            "group": "lab", "labels": ["gpu", "big"], "trust": "self-hosted", "vendor": "nvidia",
            "targets": ["sm_90"], "engine": "embedded",
        },
        "pods": {
            "scale_set": "mi300", "trust": "self-hosted", "vendor": "amd", "targets": "gfx942",
            "image": f"docker.io/library/docker@sha256:{'0' * 64}",
        },
    },
    "builders": {"near": {"host": "tcp://10.0.0.1:2375", "cache": "ghcr.io/me/cache"}},
}  # fmt: skip
HOSTILE = (
    f"a$(touch {MARK})",
    f"a`touch {MARK}`",
    f"a; touch {MARK}",
    f'a"; touch {MARK}; "',
    f"a'; touch {MARK}; '",
    f"a\n  - run: touch {MARK}",
    f"a # {MARK}",
    f"a: {MARK}",
    f"${{{{ secrets.{MARK} }}}}",
    f"a\x1b]0;{MARK}\x07",
    f"a\u2028{MARK}",
    f"*{MARK}",
    f"!!python/name:{MARK}",
)
COMMANDS = frozenset({"run", "script", "before_script", "after_script", "if", "rules", "uses"})
Path_ = tuple[str | int, ...]


def leaves(value: object, path: Path_ = ()) -> Iterator[Path_]:
    """The places of all texts below a value, the names of tables too."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from leaves(below, (*path, key))
            if path == ("runners",):
                yield (*path, key, "")  # the row's own name
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from leaves(below, (*path, number))
    elif isinstance(value, str):
        yield path


def with_text(path: Path_, text: str) -> dict[str, Any]:
    matrix = copy.deepcopy(MATRIX)
    *above, last = path
    table: Any = matrix
    for key in above if last else above[:-1]:
        table = table[key]
    if last:
        table[last] = text
    else:
        table[text] = table.pop(above[-1])
    return matrix


PLACES = tuple(leaves(MATRIX))


def commands(value: object, *, inside: bool = False) -> Iterator[str]:
    """Every text of a workflow that a shell or an expression reads."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from commands(below, inside=inside or key in COMMANDS)
    elif isinstance(value, list):
        for below in value:
            yield from commands(below, inside=inside)
    elif isinstance(value, str) and (inside or "${{" in value):
        yield value


def unsafe(path: str, text: str, hostile: str) -> Iterator[str]:
    """What is wrong with a file that was written from a matrix with `hostile` in it."""
    if re.search(r"[^\n\t -~]", text):
        yield f"{path}: an invisible character"
    if path.endswith((".yml", ".yaml")):
        for document in yaml.load_all(text, yaml.CSafeLoader):
            yield from (f"{path}: {one!r}" for one in commands(document) if hostile in one)
    elif path.endswith(".sh") and hostile in text:
        yield f"{path}: {hostile!r}"


@pytest.mark.parametrize("text", ["run: echo {}", "if: ${{{{ {} }}}}", "a: ['${{{{ {} }}}}']"])
def test_a_command_with_foreign_text_is_found(text: str) -> None:
    assert [*unsafe("a.yml", text.format(HOSTILE[0]), HOSTILE[0])]
    assert not [*unsafe("a.yml", f"labels: ['{HOSTILE[0]}']", HOSTILE[0])]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    make_project(root)
    return root


def outcome(root: Path, matrix: dict[str, Any]) -> dict[str, str | None] | None:
    """The files of CI; None where the matrix is refused, in words that a terminal can show."""
    path, text = root / "matrix.yaml", (root / "matrix.yaml").read_text(encoding="utf-8")
    changed = yaml.load(text, yaml.CSafeLoader) | matrix
    path.write_text(yaml.dump(changed, Dumper=yaml.CSafeDumper), encoding="utf-8")
    try:
        return dict(ci_files(open_workspace(root), "\n".join))
    except WarpfrontError:
        return None
    finally:
        path.write_text(text, encoding="utf-8")


def test_the_matrix_of_this_test_gives_workflows_of_both_forges_and_a_cluster(
    project: Path,
) -> None:
    files = outcome(project, MATRIX)
    assert files is not None
    assert {"ci/setup.sh", ".github/workflows/warpfront.yml", "ci/kubernetes/pods.values.yaml"} <= {
        *files
    }
    assert any("gitlab" in path for path in files)


@given(place=st.sampled_from(PLACES), hostile=st.sampled_from(HOSTILE) | st.text(min_size=1))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_foreign_text_is_refused_or_a_value(project: Path, place: Path_, hostile: str) -> None:
    files = outcome(project, with_text(place, hostile))
    plain = re.fullmatch(r"[\w.-]+", hostile, re.ASCII)
    for path, text in (files or {}).items():
        found = [*unsafe(path, text or "", MARK if MARK in hostile else hostile)]
        assert plain or found == []


@pytest.mark.exhaustive
def test_each_foreign_text_at_each_place_is_refused_or_a_value(project: Path) -> None:
    for place in PLACES:
        for hostile in HOSTILE:
            files = outcome(project, with_text(place, hostile))
            found = [
                one
                for path, text in (files or {}).items()
                for one in unsafe(path, text or "", MARK)
            ]
            assert found == [], (place, hostile)
