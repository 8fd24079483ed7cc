"""What an image is made of: by its lock, by what was found in it, and nothing by heart."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from bills import (
    A_CONTENTS,
    BASH,
    BOOTSTRAPPED,
    NUMPY,
    UV,
    a_bill,
    cyclonedx_fault,
    spdx_faults,
)
from builders import A_PATCH, A_RESOLVED_BASE, a_cell, a_child, a_lock, a_patched_lock, a_wheel

from warpfront.matrix.cell import RequirementList, WheelIndex
from warpfront.matrix.language import OwnIndex
from warpfront.release.sbom.documents import cyclonedx_text, spdx_text
from warpfront.release.sbom.parts import Bill
from warpfront.wheels.resolve.demands import asked_for, requirers_of, roots_of
from warpfront_checks.image_contents import Contents, FoundDistribution, Package


def purls(bill: Bill, kind: str) -> list[str]:
    return [part.purl for part in bill.parts if part.kind == kind]


def test_every_wheel_of_the_lock_is_there_with_its_hash_and_file() -> None:
    wheel = a_wheel("torch", index="https://download.pytorch.org/whl/cpu", sha256="ab" * 32)
    (part,) = [part for part in a_bill(lock=a_lock(None, wheel)).parts if part.kind == "wheel"]
    assert part.sha256 == "ab" * 32
    assert part.purl == (
        "pkg:pypi/torch@2.13.0%2Bcpu?file_name=torch-2.13.0%2Bcpu-py3-none-any.whl"
        "&repository_url=https://download.pytorch.org/whl/cpu"
    )
    assert part.licence.expression == "BSD-3-Clause"


def test_a_wheel_that_nothing_was_found_of_is_listed_without_a_licence() -> None:
    bill = a_bill(contents=Contents())
    assert len(purls(bill, "wheel")) == 3
    assert {part.licence.expression for part in bill.parts} == {""}


def test_a_companys_own_index_is_named_to_nobody() -> None:
    wheel = a_wheel("torch", index="https://wheels.corp.example/simple")
    own = OwnIndex(name="corp", url=wheel.index, packages=("torch",))
    bill = a_bill(lock=a_lock(None, wheel), cell=a_cell(own_indexes=(own,)))
    assert "corp" not in cyclonedx_text(bill) + spdx_text(bill)


def test_what_is_in_the_image_and_in_no_lock_came_with_the_base() -> None:
    assert purls(a_bill(FoundDistribution(name="Some.Thing", version="1")), "distribution") == [
        "pkg:pypi/some-thing@1"
    ]


def test_a_debian_package_says_its_system_and_architecture() -> None:
    assert purls(a_bill(), "debian") == [
        "pkg:deb/debian/bash@5.2.15-2%2Bb13?arch=amd64&distro=debian-12"
    ]


def test_the_same_package_twice_is_one_part_and_in_two_architectures_two() -> None:
    other = dataclasses.replace(BASH, architecture="i386")
    contents = dataclasses.replace(A_CONTENTS, packages=(BASH, other, BASH))
    assert len(purls(a_bill(contents=contents), "debian")) == 2


def test_what_two_wheels_carry_is_in_each() -> None:
    bill = a_bill(dataclasses.replace(NUMPY, carried=UV.carried))
    carried = [part for part in bill.parts if part.kind == "carried"]
    assert {part.purl for part in carried} == {"pkg:cargo/aes@0.8.4"}
    assert {part.within for part in carried} == {
        purl for purl in purls(bill, "wheel") if "torch" not in purl
    }
    tops = json.loads(cyclonedx_text(bill))["components"]
    assert sorted(top["name"] for top in tops if "components" in top) == ["numpy", "uv"]


def test_a_base_is_named_by_digest_and_a_bootstrapped_one_by_no_registry() -> None:
    assert a_bill().base.purl == (
        f"pkg:oci/python@{A_RESOLVED_BASE.identity}"
        "?repository_url=docker.io/library/python&tag=3.11-slim-bookworm"
    )
    made = a_bill(base=BOOTSTRAPPED).base
    assert made.purl == f"pkg:oci/debian-12@{A_RESOLVED_BASE.identity}?tag={'cd' * 6}"
    assert made.source == f"bootstrapped by recipe sha256:{'cd' * 32}"


def test_an_image_asks_for_its_parents_requirements_and_for_what_its_file_names() -> None:
    parent = a_cell(requirements=("numpy",))
    asked = RequirementList(requirements=("fastapi",))
    child = a_child(parent, requirements=("ninja",), listed=asked)
    assert roots_of((parent, child), ()) == (
        "torch==2.13.0+cpu",
        "numpy",
        "ninja",
        "fastapi",
    )


def test_who_asked_is_known_where_markers_hold() -> None:
    asked = [(a.partition("@")[0], b.partition("@")[0], text) for a, b, text in a_bill().asked]
    assert asked == [
        ("", "pkg:pypi/torch", "torch==2.13.0+cpu"),
        ("", "pkg:pypi/uv", "uv"),
        ("pkg:pypi/torch", "pkg:pypi/numpy", "numpy>=1.22"),
    ]


def asking(*roots: str, **requires: tuple[str, ...]) -> tuple[tuple[str, str, str], ...]:
    return asked_for(requires, roots, python="3.11", machine="x86_64")


def test_an_extra_counts_from_where_somebody_asked_for_it() -> None:
    requires = {"a": ("b; extra == 'more'", "c; python_version < '3.12'", "d"), "b": ("a[more]",)}
    assert {wanted for _, wanted, _ in asking("a", **requires)} == {"a", "c", "d"}
    assert ("a", "b", "b") in asking("a[more]", **requires)


def test_a_chain_leads_from_the_image_to_who_asks() -> None:
    asked = asking("a", "e", a=("b",), b=("c>=1",), c=("b",), e=("c",))
    assert list(requirers_of("c", asked)) == [(("a", "b"), "c>=1"), (("e",), "c")]
    assert list(requirers_of("a", asked)) == [((), "a")]
    assert list(requirers_of("nobody", asked)) == []


def test_an_address_in_a_requirement_stays_at_home() -> None:
    asked = asking("a @ https://user:canary@host.example/a.whl")
    assert asked == (("", "a", "a"),)


HOSTILE = FoundDistribution(
    name="<b>evil\u202e</b>\x1b[31m",
    version="1 \n2|\"'\x07",
    expression="MIT OR <script>",
    licence="\x00" * 100,
    requires=("torch\x00", "-e .", "torch" * 1000),
)


ODD_PACKAGES = Contents(
    packages=tuple(Package(name=f"p{n % 7}", version="1:2~3+4", architecture="") for n in range(20))
)
BILLS = {
    "ordinary": a_bill(),
    "nothing found": a_bill(contents=Contents()),
    "hostile": a_bill(HOSTILE),
    "odd index": a_bill(cell=a_cell(index=WheelIndex(name="x", url="https://x.example/ a"))),
    "odd packages": a_bill(contents=ODD_PACKAGES),
}


# One test: the validators take longer to load than to judge.
def test_the_documents_are_valid_by_their_own_validators_and_the_same_twice() -> None:
    for name, bill in BILLS.items():
        text, spdx = cyclonedx_text(bill), spdx_text(bill)
        assert (name, cyclonedx_fault(text), spdx_faults(json.loads(spdx))) == (name, "", [])
        assert (cyclonedx_text(bill), spdx_text(bill)) == (text, spdx)
        assert not {one for one in text + spdx if ord(one) < 32} - {"\n"}, name


def test_what_was_patched_says_of_what_it_was_made_and_by_what() -> None:
    bill = a_bill(lock=a_patched_lock(a_wheel("torch")))
    text = cyclonedx_text(bill)
    assert not cyclonedx_fault(text)
    (pedigree,) = [one["pedigree"] for one in json.loads(text)["components"] if "pedigree" in one]
    (patch,) = pedigree["patches"]
    assert patch["type"] == "unofficial"
    assert patch["diff"]["url"] == A_PATCH.upstream
    assert patch["diff"]["text"]["content"] == str(A_PATCH)
    assert pedigree["notes"].startswith("patched from lmcache-0.3.9-py3-none-any.whl sha256:")
    document = json.loads(spdx_text(bill))
    assert spdx_faults(document) == []
    (said,) = [one for one in document["packages"] if "comment" in one]
    assert said["name"] == "lmcache"
    assert str(A_PATCH) in said["comment"]
    assert "patched from" in said["sourceInfo"]


def test_documents_of_different_bills_have_different_names() -> None:
    bills = [a_bill(), a_bill(created="2026-11-23T00:00:00+00:00")]
    assert len({json.loads(cyclonedx_text(one))["serialNumber"] for one in bills}) == 2
    assert len({json.loads(spdx_text(one))["documentNamespace"] for one in bills}) == 2


def test_the_validators_find_what_is_wrong() -> None:
    document: dict[str, Any] = json.loads(cyclonedx_text(a_bill()))
    document["components"][0]["type"] = "thing"
    assert cyclonedx_fault(json.dumps(document))
    document = json.loads(cyclonedx_text(a_bill()))
    document["externalReferences"] = [{"type": "vcs", "url": "no address"}]
    assert cyclonedx_fault(json.dumps(document))
    spdx: dict[str, Any] = json.loads(spdx_text(a_bill()))
    spdx["relationships"][0]["relatedSpdxElement"] = "SPDXRef-nobody"
    assert spdx_faults(spdx)
