"""YAML: compose files, Kubernetes objects, CI workflows and conda environments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.setting_rules import WORDS as SETTING_WORDS
from warpfront_port.scan.setting_rules import read_setting
from warpfront_port.scan.structured.command_rules import (
    CONDA_CUDA,
    option_rule_matches,
    script_rule_matches,
    variable_rule_matches,
)
from warpfront_port.scan.structured.commands import Word
from warpfront_port.scan.words import CUDA_INDEX, NVIDIA_IMAGE, index_shift

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SCRIPTS = frozenset(
    {"run", "script", "before_script", "after_script", "command", "entrypoint", "install"}
    | {"commands", "args", "setup", "cmd"}
)
_IMAGES = frozenset({"image", "container", "base_image", "base-image"})
_INTERESTING = re.compile(
    r"(?i)nvidia|cuda|gpu|/cu\d|nvcr|nccl|pip|torch|uv |alloc_conf|nsys|conda|flash|apex|triton|"
    + "|".join(SETTING_WORDS)
)
_NODE_LIMIT = 100_000


class _Document:
    """A YAML text, walked once. A node with several names is visited once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._seen: set[int] = set()

    def walk(self, node: yaml.Node, path: tuple[str, ...]) -> Iterator[Match]:
        if id(node) in self._seen or len(self._seen) > _NODE_LIMIT or len(path) > 60:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield from self._named_variable(node)
            for key, value in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else ""
                if name == "nvidia.com/gpu" or name.startswith("nvidia.com/mig"):
                    yield self._word(key).match("CT404")
                if isinstance(value, yaml.ScalarNode):
                    yield from self._scalar(name, value, path)
                yield from self.walk(value, (*path, name))
        elif isinstance(node, yaml.SequenceNode):
            items = [item for item in node.value if isinstance(item, yaml.ScalarNode)]
            yield from option_rule_matches([self._word(item) for item in items])
            for item in node.value:
                if isinstance(item, yaml.ScalarNode):
                    yield from self._item(item, path)
                yield from self.walk(item, (*path, "-"))

    def _scalar(self, name: str, value: yaml.ScalarNode, path: tuple[str, ...]) -> Iterator[Match]:
        word = self._word(value)
        text = word.text
        devices = name == "gpus" and "services" in path
        if devices or (name, text) in {("driver", "nvidia"), ("runtime", "nvidia")}:
            yield word.match("CT402", f"{name}: {text}")
        elif name in _IMAGES and NVIDIA_IMAGE.fullmatch(text):
            yield word.match("CT401")
        elif name in _SCRIPTS:
            yield from self._script(value)
        elif name.isupper():
            yield from variable_rule_matches(name, text, word)
        elif uses := [*read_setting(".".join((*path[-2:], name)), text)]:
            yield word.match(uses[0].rule, uses[0].excerpt)
        elif CUDA_INDEX.search(text):
            yield word.match("DP314", text[:80], index_shift(self.text))

    def _named_variable(self, node: yaml.MappingNode) -> Iterator[Match]:
        """Yield the matches in Kubernetes' `name: X` with `value: y`."""
        pairs = {str(key.value): v for key, v in node.value if isinstance(v, yaml.ScalarNode)}
        if {"name", "value"} <= pairs.keys():
            value = pairs["value"]
            yield from variable_rule_matches(pairs["name"].value, value.value, self._word(value))

    def _item(self, item: yaml.ScalarNode, path: tuple[str, ...]) -> Iterator[Match]:
        word = self._word(item)
        last = next((name for name in reversed(path) if name != "-"), "")
        if last in _SCRIPTS:
            yield from self._script(item)
        elif last in {"environment", "env"} and "=" in word.text:
            name, _, value = word.text.partition("=")
            yield from variable_rule_matches(name, value, word)
        elif last in {"dependencies", "channels"} and (
            CONDA_CUDA.fullmatch(word.text) or (last == "channels" and word.text == "nvidia")
        ):
            yield word.match("DP317")
        elif last == "pip" and "dependencies" in path:
            for required in read_requirement(word.text):
                yield word.match(required.rule, shift=required.shift)
            if CUDA_INDEX.search(word.text):
                yield word.match("DP314", word.text[:80])

    def _script(self, node: yaml.ScalarNode) -> Iterator[Match]:
        start, end = node.start_mark.index, node.end_mark.index
        raw = self.text[start:end]
        if node.style in {"|", ">"}:
            newline = raw.find("\n") + 1
            start, raw = start + newline, raw[newline:]
        elif node.style in {"'", '"'}:
            start, raw = start + 1, raw[1:-1]
        yield from script_rule_matches(raw, start)

    def _word(self, node: yaml.ScalarNode) -> Word:
        return Word(text=node.value, start=node.start_mark.index, end=node.end_mark.index)


def yaml_rule_matches(text: str) -> Iterator[Match]:
    """Yield the matches of every rule in YAML text. Templates that are no YAML are skipped."""
    if _INTERESTING.search(text) is None:
        return
    try:
        roots = list(yaml.compose_all(text, Loader=_LOADER))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if "{{" not in text and "{%" not in text:
            message = str(getattr(error, "problem", "") or type(error).__name__)
            yield Match(rule="SC003", start=0, end=0, excerpt=message)
        return
    document = _Document(text)
    for root in roots:
        if root is not None:
            yield from document.walk(root, ())
