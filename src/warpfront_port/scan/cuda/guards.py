"""The rules about conditions that leave AMD without code: CU123 and CU124. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront_port.scan.cuda.conditions import Macros, is_named
from warpfront_port.scan.cuda.preprocessor import Arm, condition_of
from warpfront_port.scan.cuda.view import View, rule_match
from warpfront_port.scan.findings import Match
from warpfront_port.scan.hipify_names import hipify_names
from warpfront_port.scan.structured.commands import AMDS, CUDAS, sides_of

_ENDS = re.compile(r"(?:__trap|assert|abort|throw|printf)\b")
_GUARD = re.compile(r"_(?:H|HH|HPP|CUH)_*\Z")
# A value of a project's own in capitals, where no bracket follows: an enumerator, an argument.
_VALUE = re.compile(r"\b(?!__)(?:[A-Z0-9_]*_)?(?:CUDA|NVIDIA)(?:_[A-Z0-9_]*)?\b(?!\s*\()")


def guard_rule_matches(view: View) -> Iterator[Match]:
    """Yield arms that test NVIDIA's compiler, in chains that AMD reaches without an arm for it, and
    those for a macro of CUDA's, with their ends, in a file without a chain for AMD alone.
    """
    directives = view.directives
    inner = [(x.start, x.body) for x in directives if x.name in {"define", "include", "error"}]
    alone = all(sides_of(" ".join(chain.macros)) != AMDS for chain in view.reaches.chains)
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
            renamed = filter(is_named, arm.macros if view.context.is_hipified else ())
            names = sorted(n for n in arm.macros.difference(renamed) if not _GUARD.search(n))
            if content and _decides(arm) and not ("amd" not in arm.reach and served):
                excerpt = f"#{arm.directive.name} {arm.directive.body}"
                yield rule_match(view, "CU123", span, excerpt=excerpt, sides=chain.reach)
            elif content and alone and sides_of(" ".join(names)) == CUDAS:
                name = next(name for name in names if sides_of(name) == CUDAS)
                excerpt = f"{name}, and none for HIP"
                # AMD's condition, or its arm after this one
                for place in (span, (end - 1, end)):
                    yield rule_match(view, "CU124", place, excerpt=excerpt, sides=chain.reach)


def value_rule_matches(view: View) -> Iterator[Match]:
    """Yield a project's own values for CUDA, in a file that names nothing of AMD's."""
    table = hipify_names()
    for match in _VALUE.finditer(view.code) if view.is_of_cuda_alone else ():
        name = match[0]
        if not (name in table.twins or name in table.twinless or name in view.macros):
            yield rule_match(view, "CU124", match.span(), excerpt=f"{name}, and none for HIP")


def _decides(arm: Arm) -> bool:
    """Return true if an arm keeps AMD out, or lets AMD in as the host or an old device."""
    condition, macros = condition_of(arm.directive), Macros()
    certain = macros.truth(condition, "amd") is True and macros.truth(condition, "nvidia") is None
    # with a bound on the architecture it is for all but old devices
    is_of_host = ">" not in condition and certain
    return "__CUDA_ARCH__" in arm.macros and ("amd" not in arm.reach or is_of_host)
