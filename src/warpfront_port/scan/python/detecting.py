"""The engine for Python source, by `ast`, and for the code cells of notebooks. Pure.

Each rule's detector is a function of one node. The conditions around a node (`gates`) are evaluated
only for matches. CUDA inside string literals goes to the CUDA engine.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from warpfront_port.scan.findings import Context, Gate, Match, SourceText
from warpfront_port.scan.python import assignments as given
from warpfront_port.scan.python import (
    commands,
    devices,
    extensions,
    graphs,
    kernels,
    mentions,
    settings,
    without_cuda,
)
from warpfront_port.scan.python.gates import Gates, Standing
from warpfront_port.scan.python.module import Module, Seen
from warpfront_port.scan.python.tables import EVERY_NAME
from warpfront_port.scan.python.tables import OF_PACKAGES as _OF_PACKAGES
from warpfront_port.scan.setting_rules import WORDS as SETTING_WORDS
from warpfront_port.scan.words import line_starts

Detector = Callable[[Module, Any], Iterator[Seen]]
CudaReader = Callable[[SourceText, Context], Iterator[Match]]

_DETECTORS: Mapping[type[ast.AST], tuple[Detector, ...]] = {
    ast.Import: (mentions.imports,),
    ast.ImportFrom: (mentions.imports_from, extensions.toolkit_imports),
    ast.Attribute: (
        mentions.attributes,
        mentions.rocm_version,
        devices.cuda_version_parsed,
        devices.home_as_switch,
        without_cuda.device_attributes,
    ),
    ast.Name: (devices.home_as_switch,),
    ast.Constant: (
        settings.strings,
        extensions.flags,
        extensions.library_places,
        extensions.libraries_added,
        devices.patched_packages,
        without_cuda.device_strings,
        without_cuda.hpu_without_bridge,
    ),
    ast.Assign: (
        given.settings_given,
        settings.environment_assignments,
        kernels.warps_assigned,
        devices.warp_sizes,
    ),
    ast.AnnAssign: (given.settings_given,),
    ast.NamedExpr: (given.settings_given,),
    ast.FunctionDef: (given.settings_given,),
    ast.AsyncFunctionDef: (given.settings_given,),
    ast.Lambda: (given.settings_given,),
    ast.Dict: (given.settings_given, settings.environment_tables),
    ast.With: (graphs.capture_bodies,),
    ast.Try: (devices.nvml_as_a_test, devices.mock_fallbacks),
    ast.Compare: (devices.comparisons,),
    ast.BoolOp: (devices.arch_alternatives,),
    ast.BinOp: (devices.core_arithmetic, kernels.warp_products),
    ast.keyword: (extensions.packaged_data,),
    ast.Raise: (extensions.cuda_alone,),
    ast.Assert: (extensions.cuda_alone,),
    ast.Call: (
        mentions.device_names,
        graphs.rng_beside_capture,
        graphs.capture_calls,
        mentions.imports_by_name,
        commands.started,
        extensions.source_globs,
        extensions.gencode_lists,
        extensions.compiler_versions,
        commands.sessions,
        commands.setup_requirements,
        given.settings_given,
        given.compile_arguments,
        graphs.kernels_of_the_hub,
        settings.environment_calls,
        devices.name_prefixes,
        devices.capability_queries,
        devices.cuda_version_taken_apart,
        devices.arch_lists,
        devices.rocm_folder,
        devices.libraries,
        devices.library_choices,
        devices.copied_over,
        devices.nccl,
        kernels.launches,
        without_cuda.device_calls,
        without_cuda.questions,
    ),
}
# Rules about tests that distinguish vendors: the gate that they are part of does not excuse them.
# 32 lanes, or a capability, in code for AMD alone is a deliberate value for its devices.
_DECIDED = frozenset({"PY019", "PY038", "PY055"})
# Nothing in a module can be a sighting if it has none of these, whatever their case, and none of
# the tables' names. A search for each is many times as fast as one for all of them by a pattern.
_WORDS = (
    "torch",
    "cuda",
    "nvidia",
    "nvml",
    "nvtx",
    "rocm",
    "gfx",
    "triton",
    "jax",
    "flax",
    "flash",
    "xformers",
    "bitsandbytes",
    "apex",
    "tensorrt",
    "cutlass",
    "nccl",
    "_alloc_conf",
    "gemm",
    "site-packages",
    "cupy",
    "rapids",
    "cudf",
    "dali",
    "warp_size",
    "inductor",
    "nvcc",
    "ptxas",
    "__global__",
    "__device__",
    "fast_math",
    "gencode",
    "--expt-",
    *SETTING_WORDS,
)
_SHORT_WORDS = re.compile(r"\b(?:hip|hpu\b|nsys\b|ncu\b|pip\b|uv\b|setuptools|nox\b)|# /// script")
_LITERALS = (
    *_WORDS,
    *sorted(name for name in map(str.lower, EVERY_NAME) if not any(w in name for w in _WORDS)),
)
_ABOUT_GATES = frozenset({"PY018", "PY023", "PY048", "PY052", "PY059", "PY015", "PY047"})


def reads(path: PurePosixPath) -> bool:
    return path.suffix in {".py", ".pyi", ".pyw"}


def rule_matches(
    source: SourceText, context: Context, read_cuda: CudaReader | None = None
) -> Iterator[Match]:
    """Yield the matches of every rule in a module.

    `read_cuda` reads CUDA inside strings. A module that does not parse is one match of SC003.
    """
    if not _is_worth_parsing(source.text):
        return
    try:
        module = Module(source.path, source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield _unreadable(source, error)
        return
    yield from commands.script_requirements(module)
    gates = Gates(module, context.started)
    reported: set[object] = set()
    for sighting in _seen(module, context):
        for rule_match in _rule_match(module, gates, sighting):
            once = _once(module, sighting, rule_match)
            if once is None or once not in reported:
                reported.add(once)
                yield rule_match
    if read_cuda is not None:
        yield from _inside_strings(module, gates, read_cuda, context)


def _is_worth_parsing(text: str) -> bool:
    lower = text.lower()
    return any(word in lower for word in _LITERALS) or _SHORT_WORDS.search(lower) is not None


def _seen(module: Module, context: Context) -> Iterator[Seen]:
    for node in module.nodes:
        for detect in _DETECTORS.get(type(node), ()):
            for sighting in detect(module, node):
                package = sighting.what.partition(".")[0] if sighting.rule in _OF_PACKAGES else ""
                if package not in context.own_packages:
                    yield sighting


def _once(module: Module, sighting: Seen, rule_match: Match) -> object:
    """Return the key of a match reported once, None for the rest.

    A package behind one gate, and a dtype in one function, are reported once.
    """
    if sighting.rule in _OF_PACKAGES:
        package = sighting.what.split(".", maxsplit=1)[0]
        return sighting.rule, package, rule_match.gate, rule_match.sides, rule_match.shift
    if sighting.rule == "PY037":
        return (
            sighting.rule,
            sighting.what,
            rule_match.gate,
            rule_match.sides,
            module.scope(sighting.node),
        )
    return None


def _unreadable(source: SourceText, error: Exception | MemoryError) -> Match:
    line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
    reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
    starts = line_starts(source.text)
    start = starts[min(line, len(starts)) - 1]
    return Match(rule="SC003", start=start, end=start, what=reason)


def _rule_match(module: Module, gates: Gates, sighting: Seen) -> Iterator[Match]:
    start, end = module.span(sighting.node)
    standing = _joined(gates.standing(sighting.node), sighting, gates)
    if sighting.rule in _DECIDED and standing.sides == {"amd"}:
        return
    match = Match(
        rule=sighting.rule,
        start=start,
        end=end,
        what=sighting.what,
        shift=sighting.shift,
        sides=standing.sides,
        gate=standing.gate,
        gate_line=standing.line,
    )
    if sighting.rule in _ABOUT_GATES and standing.gate is Gate.AVAILABILITY:
        match = dataclasses.replace(match, gate=Gate.OPEN)
    yield match


def _joined(standing: Standing, sighting: Seen, gates: Gates) -> Standing:
    """Return the conditions before a value where it is written and where it takes effect."""
    sides, line = standing.sides & sighting.sides, standing.line
    if sighting.via is None:
        return dataclasses.replace(standing, sides=sides)
    effect = gates.standing(sighting.via)
    gate = standing.gate if standing.gate is not Gate.OPEN else effect.gate
    return Standing(sides=sides & effect.sides, gate=gate, line=line or effect.line)


def _inside_strings(
    module: Module, gates: Gates, read_cuda: CudaReader, context: Context
) -> Iterator[Match]:
    for start, end, node in kernels.cuda_texts(module):
        standing = gates.standing(node)
        gate = standing.gate
        inner = SourceText(path=module.path, text=module.text[start:end])
        for rule_match in read_cuda(inner, context):
            yield dataclasses.replace(
                rule_match,
                start=rule_match.start + start,
                end=rule_match.end + start,
                sides=rule_match.sides & standing.sides,
                gate=rule_match.gate if rule_match.gate is not Gate.OPEN else gate,
                gate_line=rule_match.gate_line or standing.line,
            )
