"""Patterns inside one string of any file: settings, flags, package indexes. Pure.

The flags are those of compilers and linkers. The name of a setting is the text before its value: a
keyword, an attribute with its owner (`torch._inductor.config.triton.cudagraphs`), a key with the
keys above it, an option of a command line or a variable of the environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from warpfront_port.scan.catalogue import catalogue, expressions

ALLOCATOR = re.compile(r"max_split_size_mb\s*:|backend\s*:\s*cudaMallocAsync", re.IGNORECASE)
_SETTING = re.compile(r"(?:\w+\s*=\s*)?['\"]?\w+\s*:[\w:,.\[\]>{}%-]*['\"]?")
# ONNX's runtime has no provider for ROCm any more: MIGraphX's is AMD's.
NAMES_AMD = re.compile(
    r"(?i)rocm(?!executionprovider)|migraphx|(?<![a-z])(?:is_?)?(?:hip(?!p)|amd(?!64))"
)
GFX = re.compile(r"(?<![\w-])gfx(?:9[0-9a-f]{2}|1[0-2][0-9a-f]{2})(?![\w])")
(CUDA_INDEX,) = expressions("indexes").values()
(NVIDIA_IMAGE,) = expressions("images").values()
# hipcc takes `-lineinfo` and the like, with one dash, as something else, and only warns.
_OPTIONS = "|".join(f"(?P<{rule}>{p.pattern})" for rule, p in expressions("options").items())
_OPTION = re.compile(rf"(?<![\w-])(?:{_OPTIONS})")


def allocator_settings(text: str) -> Iterator[tuple[str, int]]:
    """Yield (what, shift) for a string that is an allocator setting of rule PY010 as a whole.

    A sentence that mentions one does not match.
    """
    whole = text.strip()
    if _SETTING.fullmatch(whole) is None:
        return
    if "max_split_size_mb" in text:
        yield whole[:80], int(re.search(r"(?i)expandable_segments\s*:\s*True", text) is not None)
    if re.search(r"backend\s*:\s*cudaMallocAsync", text):
        # warpfront: ignore[PY010] the name of what is looked for
        yield "backend:cudaMallocAsync", 1


def compiler_flag(text: str) -> Iterator[tuple[str, str]]:
    """Yield (rule, flag) for the first flag that only NVIDIA's compiler or libraries know."""
    match = _OPTION.search(text)
    if match is not None and match.lastgroup is not None:
        yield match.lastgroup, match[0].strip()


def line_starts(text: str) -> list[int]:
    """Return the offsets of lines, as Python's parser counts them: at \\n, \\r\\n and \\r only."""
    return [0, *(match.end() for match in _LINE_END.finditer(text))]


_LINE_END = re.compile(r"\r\n|\n|\r")


def line_of(text: str, offset: int) -> int:
    """Return the 1-based line of an offset."""
    return text.count("\n", 0, offset) + 1


def uncommented(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the first match that no `#` precedes in its line."""
    if pattern.search(text) is None:
        return None
    return pattern.search(_COMMENT.sub(lambda comment: "#" * len(comment[0]), text))


_COMMENT = re.compile(r"#[^\n]*")


def is_automation(path: str) -> bool:
    """Return true if a file is of the project's own CI."""
    return _AUTOMATION.match(path) is not None


_AUTOMATION = re.compile(
    r"(?:.*/)?\.[^/]+(?:/|\.ya?ml\Z)|(?:azure-pipelines|appveyor)[\w-]*\.ya?ml\Z|(?:ci|cicd|buildkite)/"
)


def is_aside(path: PurePosixPath) -> bool:
    """Return true if a file lies among examples, benchmarks, tests and the like."""
    return any(_ASIDE.fullmatch(part.lower()) for part in path.parts[:-1])


_USES = r"examples?|benchmarks?|bench|demos?|tutorials?|samples?|tests?"
_ASIDE = re.compile(rf"(?:\w*[_-])?(?:{_USES})|docs?|recipes|scripts|tools")


def is_of_use(path: str) -> bool:
    """Return true for examples, benchmarks and tests: how a project is used, or measured."""
    return _OF_USE.search(path) is not None


_OF_USE = re.compile(
    rf"(?i)(?:/|\A)(?:(?:[^/]*[-_])?(?:{_USES})|recipes|cookbooks?"
    r"|testing|testsuite|integration|e2e)/(?!.*(?:CMakeLists\.txt|\.cmake|\.mk|akefile[.\w]*)\Z)"
)


def is_named_for_nvidia(path: str) -> bool:
    """Return true for `cuda/ops.py` and `ops_cuda.py`: a name for what NVIDIA's devices run."""
    return _NVIDIAS.search(path) is not None


_NVIDIAS = re.compile(
    r"(?i:(?<![a-z])(?:(?:cuda|nvidia|nvml|nvrtc|nvshmem|nvtx|cupy|cuvs|cublas|cudnn|cutlass|cutile"
    r"|tensorrt|trtllm|flashinfer|transformer_engine|hopper|blackwell|jetson|(?:cu|sm_?)(?=\d\d))"
    r"[\d.]*a?(?:[._/-]|\Z)|cute(?:dsl)?/))|(?:CUDA|Cuda)[^/]*\Z"
)


_TRUE = frozenset({"1", "true", "yes", "on"})
SETTING_WORDS = ("overhead", "autotune", "cudagraph", "memory_planning", "tf32", "matmul_precision",
         "fp32_precision", "flash_att", "attn_backend", "attention_backend",
         "attention-backend", "num_warps", "num_ctas", "warp_size", "warpsize", "per_warp",
         "num_lanes")  # fmt: skip
"""One of these is in every text that gives a setting of these rules."""


_NAMES = re.compile(
    r"(?i)mode|compil|dynamo|attn|attention|precision|tf32|cudagraph|memory_planning|flash|backend|warp"
    r"|num_ctas|num_lanes"
)


def may_be_setting(name: str) -> bool:
    """Return true if any rule can be about a setting of this name, as a quick first check."""
    return _NAMES.search(name) is not None


_ROWS: Sequence[tuple[str, re.Pattern[str], re.Pattern[str] | None, Mapping[str, Any]]] = [
    (rule.id, re.compile(row["settings"]), row.get("value") and re.compile(row["value"]), row)
    for rule in catalogue().values()
    for row in rule.seen
    if "settings" in row
]


def read_setting(name: str, value: str, *, own: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (rule, what) for `name` with `value`. Text that means yes counts as true.

    `own` marks a name of the program's own, such as tf32, which no library may read.
    """
    plain, text = name.strip("-").replace("-", "_").lower(), value.strip()
    is_yes = text.lower() in _TRUE
    for rule, names, values, row in _ROWS:
        fits = is_yes if values is None else values.fullmatch(text)
        owned = row.get("own", own) is own and not (own and row.get("library"))
        if fits and owned and names.fullmatch(plain):
            yield rule, row.get("shown", "{name}={value}").format(name=name, value=text)
