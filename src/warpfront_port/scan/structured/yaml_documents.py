"""YAML: compose files, Kubernetes objects, CI workflows and conda environments. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from warpfront_port.scan.findings import Match
from warpfront_port.scan.package_rules import read_requirement
from warpfront_port.scan.structured.command_rules import CONDA_CUDA, variable_rule_matches
from warpfront_port.scan.structured.commands import Word
from warpfront_port.scan.words import NVIDIA_IMAGE, SETTING_WORDS

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_IMAGES = frozenset({"image", "container", "base_image", "base-image"})
_INTERESTING = re.compile(
    r"(?i)nvidia|cuda|gpu|/cu\d|nvcr|nccl|pip|torch|uv |alloc_conf|nsys|conda|flash|apex|triton|"
    + "|".join(SETTING_WORDS)
)


class _Document:
    """A YAML text, walked once. A node with several names is visited once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._seen: set[int] = set()

    def walk(self, node: yaml.Node, path: tuple[str, ...]) -> Iterator[Match]:
        """Yield the matches below a node; `path` has the names above it, "-" for a list."""
        if id(node) in self._seen or len(self._seen) > 100_000 or len(path) > 60:
            return
        self._seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = key.value if isinstance(key, yaml.ScalarNode) else ""
                if name == "nvidia.com/gpu" or name.startswith("nvidia.com/mig"):
                    yield self._word(key).match("CT404")
                yield from self.walk(value, (*path, name))
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                yield from self.walk(item, (*path, "-"))
        elif isinstance(node, yaml.ScalarNode) and path:
            yield from self._scalar(node, path)

    def _scalar(self, node: yaml.ScalarNode, path: tuple[str, ...]) -> Iterator[Match]:
        """Yield the matches in a value. Its name is that of the list that it is an item of."""
        word = self._word(node)
        text, listed = word.text, path[-1] == "-"
        name = next((part for part in reversed(path) if part != "-"), "")
        devices = name == "gpus" and "services" in path
        if listed and name in {"environment", "env"} and "=" in text:
            variable, _, value = text.partition("=")
            yield from variable_rule_matches(variable, value, word)
        elif listed and name in {"dependencies", "channels"}:
            if CONDA_CUDA.fullmatch(text) or (name == "channels" and text == "nvidia"):
                yield word.match("DP317")
        elif listed and name == "pip" and "dependencies" in path and "://" not in text:
            for rule, shift in read_requirement(text):
                yield word.match(rule, shift=shift)
        elif devices or (name, text) in {("driver", "nvidia"), ("runtime", "nvidia")}:
            yield word.match("CT402", f"{name}: {text}")
        elif name in _IMAGES and NVIDIA_IMAGE.fullmatch(text):
            yield word.match("CT401")
        else:
            yield from variable_rule_matches("" if listed else name, text, word)

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
