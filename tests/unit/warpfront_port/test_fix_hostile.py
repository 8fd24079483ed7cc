"""Names and texts of others in what `scan --fix` and `models --write` make: a patch changes its own
file alone, and a name is never code.
"""

from __future__ import annotations

import ast
import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpfront.commands.model_writing import write_model_test
from warpfront.errors import InputError
from warpfront_port.commands.port_work import fixes_of, write_fixes
from warpfront_port.scan import cuda
from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.fix import Fix, fix_source, quoted_path

KERNEL = """#include <cuda_fp16.h>
__device__ float f(float v) {
  v += __shfl_down_sync(0xffffffff, v, 8);
  return __shfl_xor_sync(0xffffffff, v, 1);
}
"""
NAMES = (
    "plain.cu",
    "two words.cu",
    'quo"te\\back.cu',
    "tab\there.cu",
    "esc\x1b]0;x\x07.cu",
    "über\u202e.cu",
    "a.cu\n--- a/other.txt\n+++ b/other.txt\n@@ -1 +1 @@\n-mine\n+theirs\n.cu",
    os.fsdecode(b"bytes\xff.cu"),
)
# Line ends of `str.splitlines` that are none to git and to compilers.
NO_LINE_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def repository(root: Path, name: str, text: str) -> Path:
    root.mkdir()
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    (root / "other.txt").write_text("mine\n")
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(text.encode())
    return root


@pytest.mark.process
@pytest.mark.parametrize("name", NAMES)
def test_a_patch_changes_the_file_of_its_name_and_no_other(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / "tree", name, KERNEL)
    (fix,) = fixes_of(root)
    assert all(character == "\n" or " " <= character <= "~" for character in fix.patch)
    done = subprocess.run(
        ["git", "apply", "-"], cwd=root, input=fix.patch.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (root / name).read_text() == fix.after != KERNEL
    assert (root / "other.txt").read_text() == "mine\n"
    files = {path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts}
    assert files == {root / name, root / "other.txt"}


def kernel_fix(text: str) -> Fix | None:
    source = SourceText(path=PurePosixPath("k.cu"), text=text)
    return fix_source(source, cuda.rule_matches(source, Context()))


@given(st.text(alphabet=st.sampled_from(NO_LINE_ENDS + "ab "), max_size=8), st.integers(0, 6))
@settings(deadline=None, max_examples=60)
def test_a_fix_counts_lines_as_compilers_do(odd: str, at: int) -> None:
    """The same edits with a comment of odd characters above them as with a plain one."""
    lines = KERNEL.splitlines(keepends=True)
    texts = ["".join([*lines[:at], f"// {word}\n", *lines[at:]]) for word in ("plain", odd)]
    plain, found = map(kernel_fix, texts)
    assert plain is not None
    assert found is not None
    assert found.after == plain.after.replace("// plain\n", f"// {odd}\n")
    body = [line for line in found.patch.split("\n")[2:] if line]
    assert {line[0] for line in body} <= set("+- @")


def test_a_link_is_not_fixed_where_it_leads(tmp_path: Path) -> None:
    outside = tmp_path / "outside.cu"
    outside.write_text(KERNEL)
    root = tmp_path / "tree"
    root.mkdir()
    (root / "k.cu").symlink_to(outside)
    write_fixes(root, fixes_of(root))
    assert outside.read_text() == KERNEL


@given(st.text(min_size=1))
def test_a_quoted_path_is_one_word_of_ascii(text: str) -> None:
    quoted = quoted_path(text)
    assert all(" " <= character <= "~" for character in quoted)
    if quoted != text:
        inner = quoted[1:-1]
        escaped = ast.literal_eval(f"b'{inner}'" if "'" not in inner else f'b"{inner}"')
        assert escaped.decode("utf-8", "surrogateescape") == text


@given(st.text(min_size=1), st.text(min_size=1))
@settings(max_examples=settings.default.max_examples * 3 if settings.default else 90)
def test_a_name_of_an_architecture_is_refused_or_a_word(
    tmp_path_factory: pytest.TempPathFactory, name: str, file: str
) -> None:
    for architecture, path in ((name, "test_x.py"), ("llama", f"{file}.py"), (f"a{name}", file)):
        place = tmp_path_factory.getbasetemp() / "models"
        place.mkdir(exist_ok=True)
        try:
            written = write_model_test(architecture, place / path, allow_undetermined=True)
        except (InputError, ValueError):
            continue
        tree = ast.parse(written.read_text())
        values = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ARCHITECTURE"
        ]
        assert [ast.literal_eval(one) for one in values] == [architecture]
        written.unlink()
        plain = write_model_test("llama", written.with_name("test_llama.py"))
        assert len(tree.body) == len(ast.parse(plain.read_text()).body)
