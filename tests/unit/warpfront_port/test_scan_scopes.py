"""What a value may stand for is followed once, however many ways lead to it."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath
from unittest import mock

from warpfront_port.scan.findings import Context, SourceText
from warpfront_port.scan.python import rule_matches
from warpfront_port.scan.python.scopes import Scopes

_FUNCTIONS = 12
_MOST_LOOKS = 100_000
"""For each of 157 calls as many expressions; by each way there they are 12 to the 10th."""


def test_functions_that_hand_a_mode_to_each_other_are_followed_once() -> None:
    names = [f"build_{number}" for number in range(_FUNCTIONS)]
    bodies = [
        f"def {name}(model, mode):\n"
        + "".join(f"    {other}(model, mode=mode)\n" for other in names)
        + "    return torch.compile(model, mode=mode)\n"
        for name in names
    ]
    text = "import torch\n" + "".join(bodies) + "build_0(model, mode='reduce-overhead')\n"
    looks: list[ast.AST] = []
    further = Scopes._further

    def counted(scopes: Scopes, node: ast.expr, depth: int) -> object:
        looks.append(node)
        assert len(looks) < _MOST_LOOKS
        return further(scopes, node, depth)

    source = SourceText(path=PurePosixPath("module.py"), text=text)
    with mock.patch.object(Scopes, "_further", counted):
        found = {seen.rule for seen in rule_matches(source, Context())}
    assert "PY001" in found
