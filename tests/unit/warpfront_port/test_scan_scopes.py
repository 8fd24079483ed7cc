"""What a value may stand for is followed once, however many ways lead to it."""

from __future__ import annotations

import ast
from pathlib import PurePosixPath
from unittest import mock

import pytest

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


@pytest.mark.parametrize(
    "command",
    [
        "['nvidia-smi'] + options",
        "['nvidia-smi', *options]",
        "[*['nvidia-smi', '-q'], options]",
        "('nvidia-smi',) + tuple(options)",
        "list(map(str, options)) and ['nvidia-smi']",
        "f'nvidia-smi -i {options}'",
        "'nvidia-smi -i {}'.format(options)",
        "'nvidia-smi -i %s' % options",
        "'nvidia-smi ' + options",
        "shlex.split('nvidia-smi ' + options)",
        "[os.path.join(folder, 'bin', 'nvidia-smi')] + options",
        "[str(pathlib.Path('/usr/bin') / 'nvidia-smi'), options]",
        "ONCE",
        "[NAME]",
        "[NAME].copy() + options",
        "args=[NAME]",
        "by_default",
    ],
)
def test_the_first_word_of_a_command_is_known_whatever_follows(command: str) -> None:
    def rules(command: str) -> set[str]:
        text = (
            "import os, pathlib, shlex, subprocess\n"
            "NAME = 'nvidia-smi'\n"
            "ONCE = [NAME]\nONCE += ['-q']\n"
            f"def f(options, folder, by_default=(NAME, '-L')):\n    subprocess.run({command})\n"
        )
        source = SourceText(path=PurePosixPath("nvidia-top.py"), text=text)
        return {seen.rule for seen in rule_matches(source, Context())}

    assert "PY016" in rules(command)
    later = f"['cat'] + {command}" if command[0] in "[(" else "'cat nvidia-smi ' + options"
    assert "PY016" not in rules(later)


def test_a_command_that_is_made_of_itself_many_times_ends() -> None:
    text = "import subprocess\ncommand = ['nvidia-smi']\n" + (
        "command = command + [option, *command]\n" * 30 + "subprocess.run(command)\n"
    )
    source = SourceText(path=PurePosixPath("module.py"), text=text)
    assert "PY016" in {seen.rule for seen in rule_matches(source, Context())}


def test_a_name_that_is_an_alias_of_itself_ends() -> None:
    text = "import torch\nlinear = linear.apply\nlinear(torch.version.cuda)\n"
    source = SourceText(path=PurePosixPath("module.py"), text=text)
    assert "PY064" in {seen.rule for seen in rule_matches(source, Context())}


def test_a_name_in_small_letters_is_made_of_what_the_name_is_made_of() -> None:
    text = (
        "import torch\nname = torch.cuda.get_device_properties(0).gcnArchName.lower()\n"
        "fast = name == 'gfx942'\n"
    )
    found = rule_matches(SourceText(path=PurePosixPath("m.py"), text=text), Context())
    assert "PY052" in {match.rule for match in found}


def test_the_value_of_a_member_of_an_enumeration_is_followed() -> None:
    text = (
        "import enum, torch\nclass How(enum.Enum):\n    FAST = 'reduce-overhead'\n"
        "f = torch.compile(model, mode=How.FAST.value)\n"
    )
    found = rule_matches(SourceText(path=PurePosixPath("m.py"), text=text), Context())
    assert "PY001" in {match.rule for match in found}
