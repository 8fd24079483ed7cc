"""What tests take from npm: installed once a machine by `npm ci`, from the lock beside
tests/node/package.json, where there is an npm; and GitHub's own evaluator of expressions.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from warpfront.system.process import cache_folder
from warpfront.system.store import exclusive

HERE = Path(__file__).with_name("node")
_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


def node_packages() -> Path:
    """The folder with node_modules. Skips where there is no npm, or it reaches no registry."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("there is no node here")
    lock = (HERE / "package-lock.json").read_bytes()
    folder = cache_folder() / "packages" / f"node-{hashlib.sha256(lock).hexdigest()[:16]}"
    with exclusive(folder.parent, print, name=".node.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, folder / name)
            words = [npm, "ci", "--ignore-scripts", "--no-fund", "--no-audit"]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"npm cannot install: {done.stderr[-500:]}")
            (folder / "done").touch()
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Expressions:
    """GitHub's evaluator, in a process of its own."""

    child: subprocess.Popen[str]

    def value(self, text: str, contexts: Mapping[str, Any], *, status: str = "success") -> Any:
        """What an expression comes to; `status` is how the jobs before ended."""
        line = json.dumps({"text": text, "contexts": contexts, "status": status})
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = json.loads(self.child.stdout.readline())
        assert "error" not in answer, f"{text}: {answer['error']}"
        return answer["value"]

    def filled(self, value: Any, contexts: Mapping[str, Any]) -> Any:
        """A value of a workflow with each expression in it evaluated."""
        if isinstance(value, dict):
            return {key: self.filled(one, contexts) for key, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one, contexts) for one in value]
        if not isinstance(value, str) or "${{" not in value:
            return value
        if whole := re.fullmatch(r"\$\{\{((?:(?!\}\}).)*)\}\}", value, re.DOTALL):
            return self.value(whole.group(1).strip(), contexts)
        return _EXPRESSION.sub(lambda one: self._text(one.group(1).strip(), contexts), value)

    def _text(self, expression: str, contexts: Mapping[str, Any]) -> str:
        """As it stands within other text."""
        return str(self.value(f"format('{{0}}', {expression})", contexts))


@contextlib.contextmanager
def expressions() -> Iterator[Expressions]:
    """Started, and ended."""
    words = ["node", str(HERE / "evaluate.mjs"), str(node_packages())]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **pipes) as child:  # type: ignore[call-overload]
        yield Expressions(child=child)
        assert child.stdin is not None
        child.stdin.close()
