"""Which licence it is: by its own words, and never by a guess."""

from __future__ import annotations

import json

import pytest
from bills import A_CONTENTS, BASH, BOOTSTRAPPED, a_bill

from warpfront.release.sbom.licences import Licence, class_of, licence_of, licence_of_package
from warpfront.release.sbom.parts import licence_document, licence_markdown, licence_rows
from warpfront_checks.image_contents import FoundDistribution, Package

MIT = "License :: OSI Approved :: MIT License"
BSD = "License :: OSI Approved :: BSD License"
OTHER = "License :: Other/Proprietary License"


def a_found(name: str = "demo", **changes: object) -> FoundDistribution:
    return FoundDistribution(name=name, version="1", **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "expression", "source"),
    [
        (a_found(expression="mit OR apache-2.0"), "MIT OR Apache-2.0", "License-Expression"),
        (a_found(expression="no such licence", licence="MIT"), "", "License-Expression"),
        (a_found(licence="BSD-3-Clause"), "BSD-3-Clause", "License"),
        (a_found(licence="The MIT  License"), "MIT", "License"),
        (a_found(licence="BSD", classifiers=(BSD,)), "", ""),
        (a_found(classifiers=(MIT,)), "MIT", "Classifier"),
        (a_found(classifiers=(MIT, BSD)), "", ""),
        (a_found(), "", ""),
        (
            a_found("nvidia-cublas", classifiers=(OTHER,)),
            "LicenseRef-NVIDIA-Proprietary",
            "Classifier",
        ),
        (
            a_found("nvidia_cudnn_cu13", licence="NVIDIA Proprietary Software"),
            "LicenseRef-NVIDIA-Proprietary",
            "License",
        ),
        (a_found("other", classifiers=(MIT, OTHER)), "LicenseRef-Proprietary", "Classifier"),
        (a_found("nvidia-nvtx", licence="Apache 2.0", classifiers=(OTHER,)), "", ""),
        (
            a_found("nvidia-cufft", licence="LicenseRef-NVIDIA-Proprietary", classifiers=(OTHER,)),
            "LicenseRef-NVIDIA-Proprietary",
            "License",
        ),
        (a_found("nvidia-nvtx", expression="Apache-2.0"), "Apache-2.0", "License-Expression"),
    ],
)
def test_the_clearest_words_count(found: FoundDistribution, expression: str, source: str) -> None:
    licence = licence_of(found)
    assert (licence.expression, licence.source) == (expression, source)


def test_what_cannot_be_read_is_kept_as_it_was_said() -> None:
    assert licence_of(a_found(licence="BSD", classifiers=(BSD,))).said == f"BSD; {BSD}"


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("MIT", "permissive"),
        ("MIT AND GPL-2.0-or-later", "copyleft"),
        ("MIT OR GPL-2.0-or-later", "permissive"),
        ("MIT AND (GPL-2.0-only OR LGPL-2.1-only)", "weak copyleft"),
        ("Apache-2.0 WITH LLVM-exception", "permissive"),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", "weak copyleft"),
        ("LicenseRef-NVIDIA-Proprietary AND MIT", "proprietary"),
        ("LicenseRef-Debian-odd", "not classed"),
        ("MIT AND Beerware", "not classed"),
        ("", "unknown"),
    ],
)
def test_an_expression_asks_what_its_operators_make_of_its_parts(
    expression: str, name: str
) -> None:
    assert class_of(Licence(expression=expression)).name == name


@pytest.mark.parametrize(
    ("names", "expression"),
    [
        (("GPL-2+", "Expat"), "GPL-2.0-or-later AND MIT"),
        (("GPL-2+ or Artistic", "Expat"), "(GPL-2.0-or-later OR Artistic-1.0-Perl) AND MIT"),
        (("GPL-3+ and ISC", "ISC"), "GPL-3.0-or-later AND ISC"),
        (("permissive",), "LicenseRef-Debian-permissive"),
        (("BSD-3-clause and/or GPL-3+",), "LicenseRef-Debian-BSD-3-clause-and-or-GPL-3"),
        (("GPL-2+ or a letter",), "LicenseRef-Debian-GPL-2-or-a-letter"),
        (("<b>|`\n",), "LicenseRef-Debian-b"),
        (("///",), "LicenseRef-Debian-unnamed"),
        ((), ""),
    ],
)
def test_debians_names_become_spdxs_where_they_have_one(
    names: tuple[str, ...], expression: str
) -> None:
    package = Package(name="x", version="1", architecture="amd64", licences=names)
    assert licence_of_package(package).expression == expression


def test_only_what_is_known_to_be_debians_main_is_free_by_its_word() -> None:
    unknown, odd = Licence(), Licence(expression="LicenseRef-Debian-odd AND MIT")
    assert [class_of(one).decision for one in (unknown, odd)] == [True, True]
    assert [class_of(one, debian_main=True).decision for one in (unknown, odd)] == [False, False]
    gpl = Licence(expression="GPL-2.0-only AND LicenseRef-Debian-odd")
    assert class_of(gpl, debian_main=True).name == "copyleft"
    proprietary = Licence(expression="LicenseRef-Proprietary")
    assert class_of(proprietary, debian_main=True).decision


def test_an_image_on_a_bootstrapped_base_leaves_only_wheels_to_decide_on() -> None:
    bare = Package(name="libc6", version="2", architecture="amd64")
    contents = A_CONTENTS.__class__(
        distributions=A_CONTENTS.distributions, packages=(BASH, bare), system="debian"
    )
    bill = a_bill(contents=contents, base=BOOTSTRAPPED)
    assert [part.name for part, asks in licence_rows(bill) if asks.decision] == ["numpy"]
    pulled = [part.name for part, asks in licence_rows(a_bill(contents=contents)) if asks.decision]
    assert pulled == ["bash", "libc6", "numpy"]


def test_the_table_has_a_row_a_package_and_counts_what_to_decide() -> None:
    document = licence_document(a_bill())
    assert isinstance(document["packages"], list)
    assert document["decisions"] == 2
    assert {row["package"] for row in document["packages"]} == {"bash", "numpy", "torch", "uv"}
    assert json.loads(json.dumps(document)) == document


@pytest.mark.parametrize("deep", [f"{'(' * 60}MIT{')' * 60}", "MIT AND " * 100_000 + "MIT"])
def test_an_expression_as_deep_or_long_as_somebody_likes_ends(deep: str) -> None:
    assert class_of(licence_of(a_found(expression=deep))).name in ("unknown", "permissive")


def test_somebody_elses_words_are_only_words_in_the_table() -> None:
    markup = "<script>alert(1)</script> | **x** [y](z) \x1b[31m\u202e\n# head"
    text = licence_markdown(a_bill(a_found("uv", licence=markup)))
    assert "<script>" not in text
    assert not [line for line in text.splitlines() if line.startswith("# head")]
    assert "\x1b" not in text
    assert "\u202e" not in text
    (row,) = {line for line in text.splitlines() if "script" in line}
    assert row.replace("\\|", "").count("|") == 5
    assert "\\[y\\](z)" in row
