"""The engine for Python source, by `ast`, and for the code cells of notebooks. Pure.

A detector is a public function of a module and of one `node`, whose annotation has the types that
it reads. The conditions around a node (`gates`) are evaluated only for matches. CUDA inside string
literals goes to the CUDA engine.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, get_args, get_type_hints

from warpfront_port.preflight.pyproject import script_metadata
from warpfront_port.scan.findings import Context, Gate, Match, SourceText
from warpfront_port.scan.python import (
    devices,
    extensions,
    kernels,
    mentions,
    settings,
    vendor_names,
    without_cuda,
)
from warpfront_port.scan.python.gates import Gates, Standing
from warpfront_port.scan.python.mentions import EVERY_NAME, OF_PACKAGES
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.nodes import Text
from warpfront_port.scan.structured.dependencies import toml_rule_matches
from warpfront_port.scan.words import SETTING_WORDS, line_starts

CudaReader = Callable[[SourceText, Context], Iterator[Match]]
Detector = Callable[[Module, Any], Iterator[Seen]]
_RULES = (
    mentions, extensions, settings, devices, kernels, without_cuda, vendor_names,
)  # fmt: skip


def _detectors() -> Mapping[type[ast.AST], list[Detector]]:
    """Return the functions that detect, by the types of nodes that their `node` is annotated as."""
    table: dict[type[ast.AST], list[Detector]] = defaultdict(list)
    for rules in _RULES:
        for name, function in inspect.getmembers(rules, inspect.isfunction):
            if function.__module__ == rules.__name__ and not name.startswith("_"):
                kinds = get_type_hints(function).get("node")
                for kind in get_args(kinds) or ((kinds,) if kinds else ()):
                    table[kind].append(function)
    return table


_DETECTORS = _detectors()
# Rules about tests that distinguish vendors: the gate that they are part of does not excuse them.
_ABOUT_GATES = frozenset({"PY023", "PY052", "PY015", "PY047"})
# 32 lanes, or a capability, in code for AMD alone is a deliberate value for its devices.
_DECIDED = frozenset({"PY019", "PY038", "PY055"})
# Nothing in a module can be a sighting if it has none of these, whatever their case, and none of
# the tables' names. A search for each is many times as fast as one for all of them by a pattern.
_WORDS = (
    *("torch", "cuda", "nvidia", "nvml", "nvtx", "rocm", "gfx", "triton", "jax", "flax", "flash"),
    *("nsight", "xformers", "bitsandbytes", "apex", "tensorrt", "cutlass", "nccl", "gemm", "cupy"),
    *("_alloc_conf", "site-packages", "rapids", "cudf", "dali", "warp_size", "inductor", "nvcc"),
    *("ptxas", "__global__", "__device__", "fast_math", "gencode", "--expt-", "nvgpu"),
    *SETTING_WORDS,
)
_SHORT_WORDS = re.compile(r"\b(?:hip|hpu\b|nsys\b|ncu\b|pip\b|uv\b|setuptools|nox\b)|# /// script")
_LITERALS = (
    *_WORDS,
    *sorted(name for name in map(str.lower, EVERY_NAME) if not any(w in name for w in _WORDS)),
)


def reads(path: PurePosixPath) -> bool:
    return path.suffix in {".py", ".pyi", ".pyw"}


def rule_matches(
    source: SourceText, context: Context, read_cuda: CudaReader | None = None
) -> Iterator[Match]:
    """Yield the matches of every rule in a module.

    `read_cuda` reads CUDA inside strings. A module that does not parse is one match of SC003.
    """
    lower = source.text.lower()
    if not any(word in lower for word in _LITERALS) and _SHORT_WORDS.search(lower) is None:
        return
    try:
        module = Module(source.path, source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        starts = line_starts(source.text)
        start = starts[min(line, len(starts)) - 1]
        yield Match(rule="SC003", start=start, end=start, excerpt=reason)
        return
    if script := script_metadata(source.text):
        yield from toml_rule_matches(script)
    gates = Gates(module, context.started)
    for sighting in _of_lines(_seen(module, context)):
        decided = sighting.rule in _DECIDED and gates.standing(sighting.node).sides == {"amd"}
        if not decided:
            yield _rule_match(module, gates, sighting)
    for start, end, node in kernels.cuda_texts(module) if read_cuda is not None else ():
        standing = gates.standing(node)
        inner = SourceText(path=module.path, text=module.text[start:end])
        for match in read_cuda(inner, context) if read_cuda is not None else ():
            inside = Standing(sides=match.sides, gate=match.gate, line=match.gate_line)
            both = inside.along(standing)
            yield replace(
                match,
                start=match.start + start,
                end=match.end + start,
                sides=both.sides,
                gate=both.gate,
                gate_line=both.line,
            )


def _of_lines(sightings: Iterable[Seen]) -> Iterator[Seen]:
    """Yield what rules see; names that mean NVIDIA only where no other rule about AMD sees any."""
    names: list[Seen] = []
    lines: set[int] = set()
    for sighting in sightings:
        if sighting.rule == "PY064":
            names.append(sighting)
            continue
        if not sighting.rule.startswith("HP"):
            lines.add(getattr(sighting.node, "lineno", 0))
        yield sighting
    yield from (name for name in names if getattr(name.node, "lineno", 0) not in lines)


def _seen(module: Module, context: Context) -> Iterator[Seen]:
    for kind, detectors in _DETECTORS.items():
        nodes = module.texts if kind is Text else module.of(kind)
        for detect in detectors:
            for node in nodes:
                for sighting in detect(module, node):
                    yield from _of_others(sighting, context)


def _of_others(sighting: Seen, context: Context) -> Iterator[Seen]:
    """Yield a sighting that is not about a package of the tree's own."""
    package = sighting.excerpt.partition(".")[0] if sighting.rule in OF_PACKAGES else ""
    if package not in context.own_packages:
        yield sighting


def _rule_match(module: Module, gates: Gates, sighting: Seen) -> Match:
    start, end = module.span(sighting.node)
    flows = module.builds_extensions and sighting.via is None
    standing = (gates.of_value if flows else gates.standing)(sighting.node)
    if sighting.via is not None:  # the conditions where a value takes effect count too
        standing = standing.along(gates.standing(sighting.via))
    soft = sighting.rule in _ABOUT_GATES and standing.gate is Gate.AVAILABILITY
    return Match(
        rule=sighting.rule,
        start=start,
        end=end,
        excerpt=sighting.excerpt or module.excerpt(sighting.node),
        shift=sighting.shift,
        sides=standing.sides,
        gate=Gate.OPEN if soft else standing.gate,
        gate_line=standing.line,
        key=sighting.excerpt.partition(".")[0] if sighting.rule in OF_PACKAGES else "",
    )
