"""From sightings to findings: severity by target, gates, places, suppressions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warpfront_port.scan.catalogue import Rule
from warpfront_port.scan.engines import Scope, scan_source
from warpfront_port.scan.findings import (
    SIDES,
    Consequence,
    Context,
    Evidence,
    Gate,
    Match,
    ScanFinding,
    Severity,
    SourceText,
)
from warpfront_port.scan.severities import Judged, Suppression, judge, read_suppressions
from warpfront_port.scan.targets import read_target

ROCM, CPU = read_target("gfx942"), read_target("cpu")
AMD_ONLY: Any = frozenset({"amd"})
LEVELS = list(Severity)


def a_rule(rule_id: str = "XX001", severity: str = "error", **changes: Any) -> Rule:
    facts: dict[str, Any] = {
        "title": "a rule",
        "engines": ("python",),
        "phase": 1,
        "severities": {"rocm": Severity(severity)},
        "message": "{what} is not there, says {what}",
        "why": "because",
        "fix": "like this",
        "sources": ("a page",),
        "consequence": Consequence.BUILD,
    }
    return Rule(id=rule_id, **(facts | changes))


RULES = {
    rule.id: rule
    for rule in (
        a_rule(),
        a_rule("XX002", "warning"),
        a_rule("XX003", "note"),
        a_rule("XX004", "error", structural=True),
        a_rule("XX005", "warning", of_amd=True),
        a_rule("SC001", "warning", structural=True, message="no reason: {what}"),
        a_rule("SC002", "note", structural=True, message="of no use: {what}"),
    )
}
TEXT = "first = 1\n  second = two(3)\nthird\n"
START = TEXT.index("two")


def a_sighting(**changes: Any) -> Match:
    facts: dict[str, Any] = {"rule": "XX001", "start": START, "end": START + 3, "excerpt": "two"}
    return Match(**(facts | changes))


def judged(
    *rule_matches: Match, text: str = TEXT, path: str = "a/module.py", target: Any = ROCM
) -> Judged:
    return judge(SourceText(path=PurePosixPath(path), text=text), rule_matches, target, RULES)


def only(*rule_matches: Match, **changes: Any) -> ScanFinding:
    (found,) = judged(*rule_matches, **changes).findings
    return found


def weighed(**changes: Any) -> tuple[str, Gate]:
    found = only(a_sighting(**changes))
    return found.severity.value, found.gate


def test_a_finding_says_where_it_is_and_what_it_is_about() -> None:
    assert judged(a_sighting(gate_line=1)) == Judged(
        findings=(
            ScanFinding(
                path="a/module.py",
                line=2,
                column=12,
                end_line=2,
                end_column=15,
                rule="XX001",
                severity=Severity.ERROR,
                message="two is not there, says two",
                gate=Gate.OPEN,
                gate_line=0,
                excerpt="second = two(3)",
            ),
        ),
        suppressed=0,
    )


def test_a_sighting_that_ends_on_a_later_line_ends_there() -> None:
    found = only(a_sighting(end=TEXT.index("third") + 5))
    assert (found.line, found.column, found.end_line, found.end_column) == (2, 12, 3, 6)
    assert found.excerpt == "second = two(3)"


def test_what_it_is_about_is_the_line_where_nothing_was_said() -> None:
    assert only(a_sighting(excerpt="")).message.startswith("second = two(3) is not there")
    assert only(a_sighting(excerpt=" a \n b ")).message.startswith("a b is not there")


def test_a_sighting_without_an_extent_shows_what_it_is_about() -> None:
    for end in (START, START - 5):
        found = only(a_sighting(end=end, excerpt="two of  three"))
        assert found.excerpt == "two of three"
        assert (found.end_line, found.end_column) == (found.line, found.column)


def test_what_is_shown_of_a_long_line_is_cut() -> None:
    text = "x" * 300
    found = only(Match(rule="XX001", start=0, end=9, excerpt="y" * 300), text=text)
    assert found.excerpt == "x" * 200
    assert found.message == f"{'y' * 200} is not there, says {'y' * 200}"


def test_line_breaks_of_every_kind_are_counted_once() -> None:
    text = "a\r\nb\rc\nd"
    places = [only(Match(rule="XX001", start=n, end=n + 1), text=text) for n in (0, 3, 5, 7)]
    assert [(one.line, one.column, one.excerpt) for one in places] == [
        (1, 1, "a"), (2, 1, "b"), (3, 1, "c"), (4, 1, "d")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "severity"), [("XX001", "error"), ("XX002", "warning"), ("XX003", "note")]
)
def test_a_rule_s_severity_is_a_finding_s(rule: str, severity: str) -> None:
    assert weighed(rule=rule) == (severity, Gate.OPEN)


def test_a_rule_that_is_not_about_a_target_finds_nothing_there() -> None:
    assert judged(a_sighting(), target=CPU).findings == ()
    assert judged(a_sighting(rule="XX004"), target=CPU).findings == ()


@pytest.mark.parametrize(
    ("rule", "shift", "severity"),
    [("XX002", 1, "error"), ("XX002", -1, "note"), ("XX003", -1, "note"), ("XX001", 1, "error")],
)
def test_a_sighting_can_be_worse_or_better_than_its_rule(
    rule: str, shift: int, severity: str
) -> None:
    assert weighed(rule=rule, shift=shift) == (severity, Gate.OPEN)


@pytest.mark.parametrize(
    ("rule", "severity", "gate"),
    [
        ("XX001", "error", Gate.OWN_ARM),
        ("XX002", "note", Gate.OWN_ARM),
        ("XX003", "note", Gate.OPEN),
        ("XX004", "error", Gate.OPEN),
        ("XX005", "warning", Gate.OPEN),
    ],
)
def test_in_amd_s_own_arm_an_error_stays_one(rule: str, severity: str, gate: Gate) -> None:
    assert weighed(rule=rule, sides=AMD_ONLY) == (severity, gate)


def test_an_arm_of_several_sides_is_nobody_s_own() -> None:
    assert weighed(rule="XX002", sides=frozenset({"amd", "nvidia"})) == ("warning", Gate.OPEN)


def test_only_amd_has_an_arm_of_its_own() -> None:
    rules = {"XX002": replace(RULES["XX002"], severities={"cpu": Severity.WARNING})}
    source = SourceText(path=PurePosixPath("a.py"), text=TEXT)
    rule_match = a_sighting(rule="XX002", sides=frozenset({"other"}))
    (found,) = judge(source, [rule_match], CPU, rules).findings
    assert (found.severity, found.gate) == (Severity.WARNING, Gate.OPEN)
    unreached = replace(rule_match, sides=AMD_ONLY)
    assert judge(source, [unreached], CPU, rules).findings == ()


def test_code_that_a_target_does_not_come_to_is_no_finding() -> None:
    assert judged(a_sighting(sides=frozenset({"nvidia", "other"}))).findings == ()
    assert len(judged(a_sighting(rule="XX004", sides=frozenset({"nvidia"}))).findings) == 1


@pytest.mark.parametrize(
    ("rule", "gate", "severity"),
    [
        ("XX001", Gate.AVAILABILITY, "note"),
        ("XX002", Gate.AVAILABILITY, "note"),
        ("XX003", Gate.AVAILABILITY, "note"),
        ("XX001", Gate.OPTION, "warning"),
        ("XX001", Gate.WRAPPED, "note"),
        ("XX002", Gate.WRAPPED, "note"),
        ("XX001", Gate.TEST, "note"),
    ],
)
def test_a_gate_softens_and_never_sharpens(rule: str, gate: Gate, severity: str) -> None:
    assert weighed(rule=rule, gate=gate) == (severity, gate)
    decided = rule == "XX002"  # a warning, in the arm of those who wrote it for AMD
    own_arm = "note" if decided else severity
    assert weighed(rule=rule, gate=gate, sides=AMD_ONLY) == (own_arm, gate)


def test_a_gate_does_not_touch_what_is_structural() -> None:
    assert weighed(rule="XX004", gate=Gate.TEST) == ("error", Gate.OPEN)


def test_the_line_of_a_condition_is_told_where_it_decided() -> None:
    assert only(a_sighting(gate=Gate.TEST, gate_line=7)).gate_line == 7
    assert only(a_sighting(sides=AMD_ONLY, gate_line=7)).gate_line == 7
    assert only(a_sighting(gate_line=7)).gate_line == 0


@pytest.mark.parametrize(
    "path",
    [".github/workflows/a.py", ".gitlab-ci.yml", ".travis.yml", "ci/build.py", "buildkite/x.sh",
     "azure-pipelines.yml", "appveyor.yaml", ".circleci/config.yml", ".ci/a/b.sh"],
)  # fmt: skip
def test_what_a_project_s_own_automation_runs_is_a_note(path: str) -> None:
    found = only(a_sighting(), path=path)
    assert (found.severity, found.gate) == (Severity.NOTE, Gate.TEST)
    assert judged(a_sighting(sides=frozenset({"nvidia"})), path=path).findings == ()
    structural = only(a_sighting(rule="XX004"), path=path)
    assert structural.severity is Severity.NOTE


@pytest.mark.parametrize("path", ["src/ci/build.py", "cipher.py", "github/a.py", "tests/.ci.py"])
def test_what_only_sounds_like_automation_is_not(path: str) -> None:
    assert only(a_sighting(), path=path).gate is Gate.OPEN


def shown(rule: str, kind: str) -> ScanFinding:
    """A finding of a file that evidence is there for."""
    rules = {rule: a_rule(rule)}
    evidence = Evidence(kind=kind, path="build.txt", line=3, reason="r")  # type: ignore[arg-type]
    source = SourceText(path=PurePosixPath("a/module.py"), text=TEXT)
    (finding,) = judge(source, [a_sighting(rule=rule)], ROCM, rules, evidence=evidence).findings
    return finding


def test_evidence_lowers_a_finding_by_one_level_and_stands_in_it() -> None:
    found = shown("CU900", "amd")
    assert (found.severity, found.gate, found.taken) == (
        Severity.WARNING,
        Gate.TAKEN,
        "build.txt:3",
    )
    left_out = shown("CU900", "left-out")
    assert (left_out.severity, left_out.gate) == (Severity.NOTE, Gate.LEFT_OUT)


def test_evidence_says_nothing_of_the_flags_of_a_build() -> None:
    assert shown("BL900", "amd").severity is Severity.ERROR


def test_uses_of_one_definition_are_one_finding() -> None:
    uses = [a_sighting(use=TEXT.index("first")), a_sighting(use=TEXT.index("third"))]
    assert only(*uses).uses == (1, 3)


@pytest.mark.parametrize("suffix", [".py", ".pyi", ".ipynb", ".yaml"])
def test_code_says_more_than_the_name_of_its_file(suffix: str) -> None:
    (finding,) = judged(a_sighting(), path=f"tools/cuda_build{suffix}").findings
    assert (finding.gate is Gate.TEST) == (suffix == ".yaml")


def test_the_same_thing_seen_twice_is_one_finding_the_worse_one() -> None:
    mild, bad = a_sighting(rule="XX002", shift=-1), a_sighting(rule="XX002", shift=0)
    for order in ((mild, bad), (bad, mild)):
        assert only(*order).severity is Severity.WARNING
    assert len(judged(a_sighting(), a_sighting(rule="XX002")).findings) == 2
    assert len(judged(a_sighting(), a_sighting(start=START + 1)).findings) == 2


def test_of_two_equally_bad_the_later_in_the_alphabet_is_told_whatever_the_order() -> None:
    one, other = a_sighting(excerpt="a"), a_sighting(excerpt="b")
    assert only(one, other) == only(other, one)
    assert only(one, other).message.startswith("b is")


def test_findings_are_in_the_order_of_the_file() -> None:
    late, early = a_sighting(), a_sighting(start=0, end=5)
    assert [one.line for one in judged(late, early).findings] == [1, 2]


def suppressing(comment: str, *, before: str = "", rule: str = "XX001") -> Judged:
    text = f"{before}two(3)  {comment}\nthird\n"
    start = text.index("two")
    return judged(Match(rule=rule, start=start, end=start + 3, excerpt="two"), text=text)


@pytest.mark.parametrize(
    "comment",
    [
        "# warpfront: ignore[XX001] known",
        "// warpfront: ignore[XX001] known",
        "/* warpfront: ignore[XX001] known */",
        "-- warpfront: ignore[XX001] known",
        "; warpfront: ignore[XX001] known",
        "<!-- warpfront: ignore[XX001] known -->",
        "rem warpfront:ignore[XX001] known",
        "# warpfront: ignore[XX002, XX001] known",
        "# warpfront: ignore[XX002,XX001]: known",
    ],
)
def test_a_comment_with_a_reason_suppresses_the_rules_that_it_names(comment: str) -> None:
    assert suppressing(comment) == Judged(findings=(), suppressed=1)


def test_a_comment_on_its_own_line_speaks_for_the_next_one_too() -> None:
    before = "    # warpfront: ignore[XX001] known\n"
    assert suppressing("", before=before) == Judged(findings=(), suppressed=1)


def test_a_comment_behind_code_speaks_for_its_own_line_alone() -> None:
    found = suppressing("", before="one()  # warpfront: ignore[XX001] known\n")
    assert found.suppressed == 0
    assert [one.rule for one in found.findings] == ["SC002", "XX001"]


def test_a_comment_does_not_speak_for_a_line_further_down() -> None:
    found = suppressing("", before="# warpfront: ignore[XX001] known\n\n")
    assert [one.rule for one in found.findings] == ["SC002", "XX001"]


def test_a_comment_at_the_end_of_what_was_found_suppresses_it() -> None:
    text = "two(\n  3)  # warpfront: ignore[XX001] known\n"
    assert judged(Match(rule="XX001", start=0, end=8), text=text).suppressed == 1


@pytest.mark.parametrize("reason", ["", "   ", " :", " */", " -->"])
def test_a_comment_without_a_reason_suppresses_nothing_and_is_told(reason: str) -> None:
    found = suppressing(f"/* warpfront: ignore[XX001]{reason}")
    assert found.suppressed == 0
    assert [(one.rule, one.severity.value) for one in found.findings] == [
        ("XX001", "error"), ("SC001", "warning")
    ]  # fmt: skip
    assert found.findings[1].message == "no reason: warpfront: ignore[XX001]"


def test_a_comment_that_suppresses_nothing_is_told_where_it_stands() -> None:
    found = suppressing("# warpfront: ignore[XX002] known")
    assert [one.rule for one in found.findings] == ["XX001", "SC002"]
    idle = found.findings[1]
    assert idle.message == "of no use: warpfront: ignore[XX002]"
    assert (idle.line, idle.column, idle.end_column) == (1, 11, 35)


def test_what_is_said_of_comments_is_not_said_to_targets_that_it_is_not_about() -> None:
    text = "a = 1  # warpfront: ignore[XX001] known\n"
    assert judged(text=text, target=CPU) == Judged(findings=(), suppressed=0)
    assert len(judged(text=text).findings) == 1


def test_a_reason_keeps_its_letters_and_loses_the_signs_around_it() -> None:
    (one,) = read_suppressions("/* warpfront: ignore[XX001]: X marks the MAX */")
    assert one.reason == "X marks the MAX"


def test_a_comment_counts_every_finding_that_it_suppresses() -> None:
    text = "two(3)  # warpfront: ignore[XX001, XX003] known\n"
    rule_matches = [
        Match(rule="XX001", start=0, end=3),
        Match(rule="XX001", start=4, end=5),
        Match(rule="XX003", start=0, end=3),
        Match(rule="XX002", start=0, end=3),
    ]
    found = judged(*rule_matches, text=text)
    assert found.suppressed == 3
    assert [one.rule for one in found.findings] == ["XX002"]


def test_of_two_comments_on_a_line_the_first_that_speaks_is_used() -> None:
    found = suppressing("# warpfront: ignore[XX002] a  // warpfront: ignore[XX001] b")
    assert found.suppressed == 0
    assert [one.rule for one in found.findings] == ["XX001", "SC002"]
    text = "# warpfront: ignore[XX001] above\ntwo()  # warpfront: ignore[XX001] beside\n"
    found = judged(Match(rule="XX001", start=33, end=36), text=text)
    assert found.suppressed == 1
    assert [(one.rule, one.line) for one in found.findings] == [("SC002", 2)]


def test_a_suppression_is_read_with_its_place_its_rules_and_its_reason() -> None:
    text = (
        "a = 1\n  # warpfront: ignore[XX001,XX002 XX003] it is: known */ \n"
        "b  # warpfront: ignore[A] x\n"
    )
    one, other = read_suppressions(text)
    assert one == Suppression(
        start=text.index("warpfront"),
        end=text.index("] it") + 1,
        lines=(2, 3),
        rules=frozenset({"XX001", "XX002", "XX003"}),
        reason="it is: known",
    )
    assert (other.lines, other.rules, other.reason) == ((3,), frozenset({"A"}), "x")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two()",
        'print("warpfront: ignore[XX001] known")',
        "# warpfront: ignore[xx001] known",
        "# warpfront: ignore[] known",
        "# warpfront: ignore XX001 known",
        "#\nwarpfront: ignore[XX001] known",
        "# warpfront ignore[XX001] known",
    ],
)
def test_what_only_looks_like_a_suppression_is_none(text: str) -> None:
    assert list(read_suppressions(text)) == []


rule_matches = st.builds(
    Match,
    rule=st.sampled_from(["XX001", "XX002", "XX003", "XX005"]),
    start=st.integers(0, len(TEXT) - 1),
    end=st.integers(0, len(TEXT)),
    shift=st.integers(-1, 1),
    sides=st.sets(st.sampled_from(SIDES)).map(frozenset),
    gate=st.sampled_from([Gate.OPEN, Gate.AVAILABILITY, Gate.WRAPPED, Gate.TEST]),
)


@given(st.lists(rule_matches, max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_things_were_seen_does_not_show(seen: list[Match], random: Any) -> None:
    """Where two sightings of one rule at one place differ in more than how bad they are, which one
    stays is open."""
    seen = list({(one.rule, one.start): one for one in seen}.values())
    turned = list(seen)
    random.shuffle(turned)
    assert judged(*seen) == judged(*turned)


@given(rule_matches)
@example(
    Match(
        rule="XX001", start=0, end=0, excerpt="", shift=-1, sides=AMD_ONLY, gate=Gate.AVAILABILITY
    )  # a warning of AMD's own arm is a note without a gate
)
def test_a_gate_never_makes_a_finding_worse(rule_match: Match) -> None:
    gated = judged(rule_match).findings
    plain = judged(replace(rule_match, gate=Gate.OPEN)).findings
    assert len(gated) == len(plain)
    for one, other in zip(gated, plain, strict=True):
        assert LEVELS.index(one.severity) <= LEVELS.index(other.severity)


@pytest.mark.parametrize(
    ("before", "severity"), [("", "error"), ("#if defined(__gfx1100__)\n", "warning")]
)
def test_an_instruction_of_another_architecture_is_an_error_where_no_test_guards_it(
    before: str, severity: str
) -> None:
    call = "__device__ void f(V a, V* c) { *c = __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(a, a); }"
    text = f"{before}{call}\n{'#endif' * bool(before)}\n"
    source = SourceText(path=PurePosixPath("k.hip"), text=text)
    for target, expected in (("gfx942", [severity]), ("gfx1100", [])):
        scope = Scope(target=read_target(target), context=Context())
        assert [f.severity.value for f in scan_source(source, scope).findings] == expected


def with_evidence(kind: Any, rule: Rule, *, path: str = "a/module.py", of: str = "") -> ScanFinding:
    evidence = Evidence(kind=kind, path=of or path, line=7, reason="a list")
    source = SourceText(path=PurePosixPath(path), text=TEXT)
    rules = {**RULES, rule.id: rule}
    found = judge(source, [a_sighting(rule=rule.id)], ROCM, rules, evidence=evidence).findings
    (finding,) = found
    return finding


@pytest.mark.parametrize(
    ("kind", "severity", "gate"),
    [
        ("amd", Severity.WARNING, Gate.TAKEN),
        ("optional", Severity.WARNING, Gate.OPTIONAL),
        ("left-out", Severity.NOTE, Gate.LEFT_OUT),
        ("aside", Severity.NOTE, Gate.TEST),
    ],
)
def test_each_kind_of_evidence_has_its_gate_and_its_place(
    kind: Any, severity: Severity, gate: Gate
) -> None:
    finding = with_evidence(kind, a_rule())
    assert (finding.severity, finding.gate) == (severity, gate)
    assert finding.taken.endswith("a/module.py:7")


def test_no_evidence_lowers_a_flag_of_a_build_but_in_a_module_of_cmake() -> None:
    flag = a_rule("BL999", engines=("structured",))
    assert with_evidence("amd", flag, path="a/CMakeLists.txt").severity is Severity.ERROR
    assert with_evidence("amd", flag, path="a/hip.cmake").severity is Severity.WARNING


def test_the_targets_own_lanes_are_lowered_by_another_file_alone() -> None:
    lanes = a_rule(severities={"rocm": Severity.NOTE, "wave64": Severity.ERROR})
    assert with_evidence("amd", lanes).severity is Severity.ERROR
    assert with_evidence("amd", lanes, of="setup.py").severity is Severity.WARNING
    assert with_evidence("optional", lanes).severity is Severity.WARNING
    suspected = replace(lanes, severities={"rocm": Severity.NOTE, "wave64": Severity.WARNING})
    assert with_evidence("amd", suspected).severity is Severity.NOTE
    wrong = replace(lanes, consequence=Consequence.WRONG)
    assert with_evidence("amd", wrong, of="setup.py").severity is Severity.ERROR


@pytest.mark.parametrize(
    ("path", "gate"),
    [("docs/install.txt", Gate.TEST), ("docs/use.md", Gate.TEST), ("README.md", Gate.OPEN)],
)
def test_a_document_other_than_the_readme_decides_nothing(path: str, gate: Gate) -> None:
    rule = a_rule("BL998", engines=("structured",))
    found = judge(
        SourceText(path=PurePosixPath(path), text=TEXT),
        [a_sighting(rule=rule.id)],
        ROCM,
        {**RULES, rule.id: rule},
    ).findings
    assert [finding.gate for finding in found] == [gate]


@pytest.mark.parametrize("rule_id", ["DP997", "CT997", "BL997"])
def test_the_projects_own_ci_sets_up_its_machine(rule_id: str) -> None:
    rule = a_rule(rule_id, engines=("structured",))
    source = SourceText(path=PurePosixPath(".github/workflows/ci.yml"), text=TEXT)
    rules = {**RULES, rule.id: rule}
    found = judge(source, [a_sighting(rule=rule.id)], ROCM, rules).findings
    assert len(found) == (rule_id == "BL997")
