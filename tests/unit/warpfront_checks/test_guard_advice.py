"""Every advice that a refusal gives is carried out by a case of the adversarial suite, in a real
image.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from adversary.cases import read_cases
from guarded import cpu_policy

from warpfront_checks.guard.going_back import Releases
from warpfront_checks.guard.refusal import explanation, stopped

RECORDED = sorted((Path(__file__).parents[2] / "golden" / "refusals").iterdir())
# An advice -> the case that follows it, with what its command must hold. Advice to ask for less
# has nothing to carry out but a satisfied request.
FOLLOWED = {
    r"to keep the image's: take a version of \S+ that accepts it": ("goes-back", "install"),
    r"to keep the image's: leave .* out, or name no version of it": ("plain", "install torch"),
    r"to keep it working: ": ("needs-torch", "install"),
    r"to do without: ": ("needs-torch", "install"),
    r"to have it: pip install --index-url \S+ '\S+'": ("vision-vendor", "--index-url"),
    r"to have it: offer \S+ to pip or uv": ("vision-vendor", "install"),
    r"and then the same command again": ("needs-vision-then", "needs-vision"),
    r"to have \S+ beside it all the same: warpfront-guard relax": ("relaxed-beside", "relax"),
    r"to give up its protection: warpfront-guard relax": ("relaxed", "relax"),
    r"to use the image's: the same command with --no-deps": ("target-no-deps", "--no-deps"),
    r"to have a second one: the same command with --extra-index": ("target-index", "--extra-index"),
    r"installed again, and what is built .* --no-build-isolation": (
        "no-build-isolation",
        "--no-build-isolation",
    ),
    r"stopped .* name its version, or set WARPFRONT_GUARD_OLDER=1": (
        "goes-back-far-meant",
        "needs-more-ever",
    ),
}
CASES = {case.id: case for case in read_cases()}
_ADVICE = re.compile(r"  |stopped ")
_FACT = re.compile(r"  \S+ \S+ is what is taken in the place of ")


def advices() -> list[str]:
    """Of every recorded refusal, and of those that depend on what an image holds."""
    needs = cpu_policy(needs={"sympy": ">=1.13.3"})
    releases = Releases(policy=cpu_policy())
    for number, wants in (("4", "torch>=3"), ("3", "torch>=3"), ("2", "torch>=3"), ("1", "torch")):
        releases.add("app", number, [wants])
    texts = [path.read_text(encoding="utf-8") for path in RECORDED]
    texts += [
        explanation("app 1.0 depends on sympy<1.5", needs),
        explanation("app 1.0 depends on torch", cpu_policy()),
        explanation("app 1.0 depends on torchaudio", cpu_policy()),
        stopped(releases, "app", "1"),
    ]
    lines = (line.removeprefix("warpfront guard: ") for text in texts for line in text.splitlines())
    return sorted({line for line in lines if _ADVICE.match(line) and not _FACT.match(line)})


@pytest.mark.parametrize("advice", advices())
def test_every_advice_is_followed_by_a_case(advice: str) -> None:
    [found] = [case for pattern, case in FOLLOWED.items() if re.search(pattern, advice)]
    name, word = found
    case = CASES[name]
    assert any(word in text for text in (case.setup, *case.commands.values()))


def test_no_pattern_is_left_from_an_advice_that_nobody_gives_any_more() -> None:
    given = "\n".join(advices())
    assert [pattern for pattern in FOLLOWED if not re.search(pattern, given)] == []
