"""The rules about conditions that leave AMD without code: CU123 and CU124. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront_port.scan.cuda.conditions import Macros
from warpfront_port.scan.cuda.preprocessor import Arm, condition_of
from warpfront_port.scan.cuda.view import View, rule_match
from warpfront_port.scan.findings import Match
from warpfront_port.scan.hipify_names import hipify_names

_RENAMED = frozenset(
    {"CUDA_VERSION", "CUDART_VERSION", "__NVCC__", "__CUDACC__", "__CUDA_ARCH__"}
    | {"__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__"}
)
"""Macros that hipify renames, and that HIP's compiler sets for no project without it."""
_ENDS = re.compile(r"(?:__trap|assert|abort|throw|printf)\b")


def guard_rule_matches(view: View) -> Iterator[Match]:
    """Yield arms that test NVIDIA's compiler, in chains that AMD reaches without an arm for it."""
    inner = [(x.start, x.body) for x in view.directives if x.name in {"define", "include", "error"}]
    tested = {name for chain in view.reaches.chains for name in chain.macros}
    twins = view.context.twin_macros
    alone = {name for name in tested & twins.keys() if twins[name] not in tested}
    alone |= set() if view.context.is_hipified else tested & _RENAMED
    for chain in view.reaches.chains:
        considered = any(arm.reach == {"amd"} for arm in chain.arms) or any(
            "HIP" in name or "ROCM" in name or "AMD" in name for name in chain.macros
        )
        if "amd" not in chain.reach or considered:
            continue
        # The code of each arm, and the bodies of the directives in it.
        starts = [arm.directive.end for arm in chain.arms]
        ends = [*(arm.directive.start for arm in chain.arms[1:]), chain.end]
        contents = [
            "".join([view.code[a:b], *(body for i, body in inner if a <= i < b)]).strip()
            for a, b in zip(starts, ends, strict=True)
        ]
        served = any(  # AMD gets code of an arm that does not begin with the program's end
            "amd" in arm.reach and content and not _ENDS.match(content)
            for arm, content in zip(chain.arms, contents, strict=True)
        )
        for arm, content, end in zip(chain.arms, contents, ends, strict=True):
            span = (arm.directive.start, arm.directive.end)
            if content and _decides(arm) and not ("amd" not in arm.reach and served):
                excerpt = f"#{arm.directive.name} {arm.directive.body}"
                yield rule_match(view, "CU123", span, excerpt=excerpt, sides=chain.reach)
            elif content and (names := arm.macros & alone):
                excerpt = f"{min(names)}, and none for {twins.get(min(names), 'HIP')}"
                for place in (span, (end - 1, end)):  # AMD's condition, or its arm after this one
                    yield rule_match(view, "CU124", place, excerpt=excerpt, sides=chain.reach)


_CHOICE = re.compile(
    r"(?:[!=]=|\bcase\b)\s*(?:\w++::)*+(?P<after>\w+)|\b(?P<before>\w*CUDA\w*)\s*[!=]="
)


def choice_rule_matches(view: View) -> Iterator[Match]:
    """Yield the comparisons with a project's own value for CUDA, where it has none for HIP."""
    table = hipify_names()
    of_cuda = {name for name in view.names if "CUDA" in name and not name.startswith("__")}
    own = of_cuda - table.twins.keys() - table.twinless - view.macros.keys()
    for match in _CHOICE.finditer(view.code) if own and view.context.is_unported else ():
        if (name := match["after"] or match["before"]) in own:
            yield rule_match(view, "CU124", match.span(), excerpt=f"{name}, and none for HIP")


def _decides(arm: Arm) -> bool:
    """Return true if an arm keeps AMD out, or lets AMD in as the host or an old device."""
    condition = condition_of(arm.directive)
    # with a bound on the architecture it is for all but old devices
    is_of_host = ">" not in condition and _certain_on_amd(condition)
    return "__CUDA_ARCH__" in arm.macros and ("amd" not in arm.reach or is_of_host)


def _certain_on_amd(condition: str) -> bool:
    """Return true if a condition is true on AMD, host and device, and may be false on NVIDIA."""
    macros = Macros()
    return macros.truth(condition, "amd") is True and macros.truth(condition, "nvidia") is None
