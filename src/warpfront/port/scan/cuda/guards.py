"""Rules about conditions that leave AMD without code: CU123 and CU124. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from warpfront.port.scan.cuda.conditions import Macros, macro_table, truth
from warpfront.port.scan.cuda.preprocessor import Arm, ConditionChain, condition_of
from warpfront.port.scan.cuda.view import View, sighting
from warpfront.port.scan.findings import Sighting

_VERSIONS = {
    "CUDA_VERSION",
    "CUDART_VERSION",
    "__NVCC__",
    "__CUDACC__",
    "__CUDACC_VER_MAJOR__",
    "__CUDACC_VER_MINOR__",
}


def guard_sightings(view: View) -> Iterator[Sighting]:
    """Arms that hang on a macro of NVIDIA's compiler, in chains that AMD comes to and that have
    no arm for it.
    """
    for chain in view.reaches.chains:
        if "amd" not in chain.reach or _has_arm_for_amd(chain):
            continue
        for arm in chain.arms:
            if "amd" in arm.reach:
                if arm.macros & _VERSIONS and (_certain_on_amd(arm) or _of_nvcc(view, arm)):
                    yield _at(view, "CU124", arm, chain)
                continue
            if "__CUDA_ARCH__" in arm.macros:
                yield _at(view, "CU123", arm, chain)
            elif arm.macros & _VERSIONS:
                yield _at(view, "CU124", arm, chain)


def _of_nvcc(view: View, arm: Arm) -> bool:
    """`#ifdef __CUDACC__`, which only hipify makes something of that hipcc defines."""
    return view.context.untranslated and "__CUDACC__" in arm.macros


def _certain_on_amd(arm: Arm) -> bool:
    """Whether a comparison with a version holds on AMD because nothing, or HIP's own number, stands
    there, and may not hold on NVIDIA: AMD takes the arm of old releases.
    """
    condition = condition_of(arm.directive)
    macros = Macros(table=macro_table())
    return (
        bool(_LESS.search(condition))
        and truth(condition, "amd", macros) is True
        and truth(condition, "nvidia", macros) is None
    )


_LESS = re.compile(r"<")


def _has_arm_for_amd(chain: ConditionChain) -> bool:
    """Whether somebody thought of AMD: an arm that it alone gets, or a macro of HIP's."""
    return any(arm.reach == {"amd"} for arm in chain.arms) or any(
        "HIP" in name or "ROCM" in name or "AMD" in name for name in chain.macros
    )


def _at(view: View, rule: str, arm: Arm, chain: ConditionChain) -> Sighting:
    directive = arm.directive
    what = f"#{directive.name} {directive.body}"
    span = (directive.start, directive.end)
    return sighting(view, rule, span, what=what, sides=chain.reach)
