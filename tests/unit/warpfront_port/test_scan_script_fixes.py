"""Fixes of scripts and Dockerfiles: the project alone where torch is ROCm's, else as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from warpfront_port.scan import structured
from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.fix import Fix
from warpfront_port.scan.script_fixes import fix_script


def fixed(text: str, path: str = "install.sh", context: Context | None = None) -> Fix | None:
    source = SourceText(path=PurePosixPath(path), text=text)
    return fix_script(source, context or Context())


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("0", ["install --no-deps -e .", "-m pip install --no-deps ./src", "done"]),
        ("1", ["install -e .", "-m pip install ./src", "done"]),
    ],
)
def test_each_vendor_runs_its_own_command(code: str, wanted: list[str], tmp_path: Path) -> None:
    text = "set -e\npip install -e .\npython3 -m pip install ./src && echo done >> $LOG\n"
    fix = fixed(text)
    assert fix is not None
    assert fix.rules == ("DP318", "DP318")
    for name in ("pip", "python3"):
        program = tmp_path / name
        asked = f'if [ "$1" = -c ]; then exit {code}; fi\n' if name == "python3" else ""
        program.write_text(f'#!/bin/sh\n{asked}echo "$@" >> $LOG\n')
        program.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(tmp_path / "log")}
    subprocess.run(["sh", "-c", fix.after], check=True, env=environment)
    assert (tmp_path / "log").read_text().splitlines() == wanted


def test_in_a_dockerfile_too_and_nothing_is_mended_twice() -> None:
    text = "FROM scratch\nRUN pip install --no-cache-dir . && rm -r /tmp/x\nRUN pip install numpy\n"
    fix = fixed(text, "Dockerfile")
    assert fix is not None
    line = fix.after.splitlines()[1]
    assert line.startswith("RUN if python3 -c 'import torch; assert torch.version.hip' 2>/dev/null")
    assert line.endswith(
        "then pip install --no-deps --no-cache-dir .; else pip install --no-cache-dir .; fi"
        " && rm -r /tmp/x"
    )
    assert fixed(fix.after, "Dockerfile") is None
    seen = structured.rule_matches(
        SourceText(path=PurePosixPath("Dockerfile"), text=fix.after), Context()
    )
    assert [one.rule for one in seen if "amd" in one.sides] == []


def test_a_path_that_says_install_is_no_command() -> None:
    fix = fixed("/opt/installer/bin/pip install .\n")
    assert fix is not None
    assert "then /opt/installer/bin/pip install --no-deps .; else" in fix.after


LEFT_ALONE = {
    "a list of requirements": "pip install -r requirements.txt\n",
    "with a list": "pip install -e . -r requirements.txt\n",
    "held already": "pip install --no-deps .\n",
    "another package": "pip install . numpy\n",
    "behind sudo": "sudo pip install .\n",
    "with a variable before it": "PIP_NO_CACHE_DIR=1 pip install .\n",
    "over two lines": "pip install \\\n  -e .\n",
    "a comment behind it": "pip install . # all of it\n",
    "in a pipe": "pip install . | tee log\n",
    "in the background": "pip install . &\n",
    "inside a substitution": 'echo "$(pip install .)"\n',
    "asked already": "if which rocminfo; then pip install --no-deps .; else pip install .; fi\n",
    "in a text": "cat > README <<END\npip install .\nEND\n",
    "uv's sync": "uv sync\n",
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_is_more_than_one_plain_command_is_left_alone(case: str) -> None:
    assert fixed(LEFT_ALONE[case]) is None


def test_a_project_without_torch_needs_none() -> None:
    assert fixed("pip install .\n", context=Context(torchless=frozenset({"."}))) is None
