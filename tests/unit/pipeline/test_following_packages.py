"""preflight: what the packages behind a project's lines do to a stack, by the real uv over stand-in
wheels on loopback.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from standins import serve_index, stand_in_wheel

from warpfront.system.progress import Watch
from warpfront.wheels.core_metadata import Distribution
from warpfront.wheels.lock.values import LockInputs
from warpfront.wheels.resolve.demands import Stack
from warpfront.wheels.sources import Site
from warpfront_port.commands import preflighting
from warpfront_port.commands.following_packages import fitting_texts
from warpfront_port.commands.preflighting import examine
from warpfront_port.commands.project_files import read_source
from warpfront_port.preflight import findings
from warpfront_port.preflight.declared import Kind
from warpfront_port.preflight.findings import Preflight
from warpfront_port.preflight.metadata_index import MetadataIndex
from warpfront_port.preflight.requirement_files import read_requirements
from warpfront_port.preflight.stacks import CellStack

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("uv_cache")]

Examined = Callable[..., Preflight]
NEEDS = ("sympy>=1.13.3", "typing-extensions>=4.10", "setuptools>=77.0.3")


class Silent(Watch):
    def say(self, text: str) -> None: ...
    def step(self, cell_id: str, text: str) -> None: ...
    def line(self, cell_id: str, text: str) -> None: ...
    def advance(self, name: str, done: int, total: int) -> None: ...


def a_stack(version: str = "2.13.0+cpu", *, answered: dict[str, str] | None = None) -> CellStack:
    inputs = LockInputs(
        cell_id="c",
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=None,
        stack_requirements=(),
        requirements=(),
    )
    stack = CellStack(
        title="cell",
        cell_ids=("cell-torch",),
        python="3.11",
        index="cpu",
        stack=Stack(versions={"torch": version}, answered=answered or {}, foreign={}),
        paired={},
        inputs=inputs,
    )
    return stack.knowing([Distribution(name="torch", version=version, requires=NEEDS)])


OPEN_METADATA = "Metadata-Version: 2.4\nDynamic: Requires-Dist\n"


def archive(folder: Path, name: str, metadata: str, setup: str) -> None:
    """A source archive with a setup.py that must not be run."""
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as made:
        for file, text in (("PKG-INFO", metadata), ("setup.py", f"raise SystemExit\n{setup}")):
            member = tarfile.TarInfo(f"{name}-1.0/{file}")
            member.size = len(text)
            made.addfile(member, io.BytesIO(text.encode()))


def zip_archive(folder: Path, name: str, setup: str) -> None:
    with zipfile.ZipFile(folder / f"{name}-1.0.zip", "w") as made:
        made.writestr(f"{name}-1.0/PKG-INFO", "Metadata-Version: 1.0\n")
        made.writestr(f"{name}-1.0/setup.py", setup)


def wheels(folder: Path) -> None:
    for version in ("1.12", "1.14"):
        stand_in_wheel(folder, "sympy", version)
    for version in ("2.4.1", "2.13.0", "2.15.0"):
        stand_in_wheel(folder, "torch", version, requires=["sympy>=1.13.3"] * (version > "2.4.1"))
    stand_in_wheel(folder, "setuptools", "84.0.0")
    stand_in_wheel(folder, "typing-extensions", "4.16.0")
    stand_in_wheel(folder, "mover", "1.0", requires=["torch==2.15.0"])
    stand_in_wheel(folder, "above", "1.0", requires=["between"])
    stand_in_wheel(folder, "between", "2.0", requires=["torch<2.5"])
    stand_in_wheel(folder, "caps", "1.0", requires=["sympy<1.13"])
    stand_in_wheel(folder, "needs-triton", "1.0", requires=["triton>=3"])
    stand_in_wheel(folder, "triton", "3.8.0")
    stand_in_wheel(folder, "plain", "1.0")
    stand_in_wheel(folder, "plain", "2.0")
    stand_in_wheel(folder, "wants-old-plain", "1.0", requires=["plain<2"])
    # As an index has them: the newest goes with a newer torch, the one before with this one.
    stand_in_wheel(folder, "paired", "2.0", requires=["torch==2.15.0"])
    stand_in_wheel(folder, "paired", "1.0", requires=["torch==2.13.0"])
    (folder / "unbuilt-1.0.tar.gz").write_bytes(b"never opened")
    archive(folder, "final", "Metadata-Version: 2.4\nRequires-Dist: torch<2.5\n", "")
    archive(
        folder, "literal", OPEN_METADATA, "setup(install_requires=['torch<2.5'], name='literal')\n"
    )
    zip_archive(folder, "zipped", "setup(name='zipped', install_requires=['torch<2.5'])\n")
    conditional = "a = ['plain']\nif cuda():\n    a.append('torch<2.5')\n"
    archive(folder, "conditional", OPEN_METADATA, f"{conditional}setup(install_requires=a)\n")
    # No wheel of its own for this Python: uv takes the metadata of any wheel of the release.
    stand_in_wheel(
        folder, "twin", "1.0", tag="cp38-cp38-manylinux2014_x86_64", requires=["torch<2"]
    )
    (folder / "twin-1.0.tar.gz").write_bytes(b"never opened")
    archive(folder, "computed", OPEN_METADATA, "setup(install_requires=compute())\n")


@pytest.fixture
def examined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Examined]:
    wheels(tmp_path / "index")
    mirror = tmp_path / "mirror"
    stand_in_wheel(mirror, "plain", "1.0")
    with (
        serve_index(tmp_path / "index", name="simple") as served,
        serve_index(mirror, name="mirror") as mirrored,
    ):
        sites = {
            "one": Site(index_url=served.url),
            "mirrored": Site(index_url=served.url, extra_index_urls=(mirrored.url,)),
        }

        def examine_text(
            text: str, stack: CellStack | None = None, site: str = "one", constraints: str = ""
        ) -> Preflight:
            monkeypatch.setattr(preflighting, "read_site", lambda: sites[site])
            read = read_requirements(text, path="r.txt")
            more = read_requirements(constraints, path="c.txt", kind=Kind.CONSTRAINT)
            return examine((read, more), (stack or a_stack(),), Silent())

        yield examine_text


def ruled(found: Preflight) -> list[tuple[int, str]]:
    return [(one.line, one.rule) for one in found.findings if one.decides]


def test_what_moves_nothing_is_determined(examined: Examined) -> None:
    found = examined("torch>=2\nplain\nsympy\n")
    assert (ruled(found), found.unknown) == ([], ())


def test_a_chain_comes_with_the_reason_and_a_way_out(examined: Examined) -> None:
    found = examined("torch\nabove\nmover\n")
    assert ruled(found) == [
        (2, findings.MOVED_BY_DEPENDENCY),
        (3, findings.MOVED_BY_DEPENDENCY),
    ]
    why = found.findings[0].why["cell"].splitlines()
    assert why[0] == "above 1.0 -> between 2.0 -> torch<2.5"
    assert why[1] == (
        "between 2.0 wants torch<2.5; this image holds torch 2.13.0+cpu, which stays."
    )
    assert "take a version of between that accepts it" in why[2]
    # No release of it does, by their own METADATA.
    assert why[-1] == "by its METADATA none of the 1 newest of between accepts torch 2.13.0+cpu"


def test_the_release_that_fits_is_named_from_its_own_metadata(examined: Examined) -> None:
    (finding,) = examined("paired\n").findings
    assert finding.why["cell"].splitlines()[-1] == (
        "by its METADATA paired 1.0 is the newest that accepts torch 2.13.0+cpu"
    )


def test_which_release_fits_a_cell_is_said_of_any_package(tmp_path: Path) -> None:
    wheels(tmp_path / "index")
    with (
        serve_index(tmp_path / "index", name="simple") as served,
        MetadataIndex(Site(index_url=served.url), read_source) as index,
    ):
        names = ("paired", "mover", "plain", "computed", "absent")
        assert list(fitting_texts(index, names, a_stack())) == [
            "by its METADATA paired 1.0 is the newest that accepts torch 2.13.0+cpu",
            "by its METADATA none of the 1 newest of mover accepts torch 2.13.0+cpu",
            "plain 2.0 demands no torch: whether its code fits is not determined",
            "computed: not determined, 1 of the 1 newest would need a build",
            "no index has a package absent",
        ]


def test_an_installer_decides_which_release_it_takes(examined: Examined) -> None:
    """Beside a line for torch it goes back to the release that fits; alone it takes the newest."""
    assert ruled(examined("torch\npaired\n")) == []
    assert ruled(examined("paired\n")) == [(1, findings.MOVED_BY_DEPENDENCY)]


def test_a_constraint_decides_which_release_comes(examined: Examined) -> None:
    assert ruled(examined("torch\npaired\n", constraints="paired==2.0\n")) == [
        (2, findings.MOVED_BY_DEPENDENCY)
    ]
    assert ruled(examined("paired\n", constraints="paired<2\n")) == []


def test_a_package_below_may_cap_what_torch_needs(examined: Examined) -> None:
    found = examined("caps\n")
    assert ruled(found) == [(1, findings.NEEDS)]
    why = found.findings[0].why["cell"]
    assert why.startswith("caps 1.0 -> sympy<1.13\n")
    assert "needs sympy>=1.13.3" in why
    assert ruled(examined("torch\ncaps\n")) == [(2, findings.NEEDS)]


def test_a_triton_below_a_package_is_the_warning_of_the_line_itself(examined: Examined) -> None:
    rocm = a_stack("2.9.1+rocm6.4", answered={"triton": "3.5.1+pytorch.triton.rocm"})
    found = examined("needs-triton==1.0\n", rocm)
    assert ruled(found) == [(1, findings.TRITON)]
    assert found.findings[0].level == "warning"
    assert found.findings[0].why["cell"].startswith("needs-triton 1.0 -> triton>=3\n")
    assert ruled(examined("needs-triton==1.0\n")) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("absent-package", "r.txt:1: absent-package was left out: there is no package"),
        ("plain==9", "r.txt:1: plain==9 was left out: no source has such a version: "),
        ("unbuilt", "unbuilt 1.0 is a source archive, and only building it tells what it demands"),
    ],
)
def test_a_line_without_a_candidate_hides_no_other(
    examined: Examined, line: str, said: str
) -> None:
    found = examined(f"{line}\nabove\nplain\n" if "plain" not in line else f"{line}\nabove\n")
    assert ruled(found) == [(2, findings.MOVED_BY_DEPENDENCY)]
    assert [text for text in found.unknown if text.startswith(said)]
    alone = examined(f"{line}\nmpmath-of-nobody\n")
    assert ruled(alone) == []
    assert len(alone.unknown) == 2


def test_a_release_is_read_by_any_of_its_wheels(examined: Examined) -> None:
    found = examined("twin\n")
    assert ruled(found) == [(1, findings.MOVED_BY_DEPENDENCY)]
    assert found.findings[0].why["cell"].startswith("twin 1.0 -> torch<2\n")
    assert found.unknown == ()


def test_what_an_archive_demands_under_a_condition_is_not_determined(examined: Examined) -> None:
    found = examined("torch\nconditional\n")
    assert ruled(found) == []
    (unknown,) = found.unknown
    assert unknown.startswith(
        "r.txt:2: conditional, under a condition that was not evaluated (setup.py of "
        "conditional 1.0): conditional 1.0 -> torch<2.5"
    )


@pytest.mark.parametrize("name", ["final", "literal", "zipped"])
def test_a_source_archive_is_followed_where_it_says_what_it_demands(
    examined: Examined, name: str
) -> None:
    found = examined(f"torch\n{name}\nplain\n")
    assert ruled(found) == [(2, findings.MOVED_BY_DEPENDENCY)]
    assert found.findings[0].why["cell"].startswith(f"{name} 1.0 -> torch<2.5\n")
    assert found.unknown == ()


def test_several_source_archives_are_followed_together(examined: Examined) -> None:
    found = examined("torch\ncomputed\nliteral\nunbuilt\nfinal\n")
    assert [line for line, _ in ruled(found)] == [3, 5]
    assert sorted(text.partition(" ")[0] for text in found.unknown) == ["computed", "unbuilt"]


def test_a_source_archive_whose_demands_are_computed_is_not_determined(
    examined: Examined,
) -> None:
    found = examined("computed\nplain\nmover\n")
    assert ruled(found) == [(3, findings.MOVED_BY_DEPENDENCY)]
    assert found.unknown == (
        "computed 1.0 is a source archive, and only building it tells what it demands",
    )


def test_lines_that_contradict_each_other_are_named_and_the_rest_is_followed(
    examined: Examined,
) -> None:
    found = examined("wants-old-plain\nplain>=2\nmover\n")
    assert ruled(found) == [(3, findings.MOVED_BY_DEPENDENCY)]
    (unknown,) = found.unknown
    assert unknown.startswith("r.txt:2: plain>=2 was left out: it contradicts wants-old-plain")


def test_a_line_that_is_left_out_is_followed_by_itself(examined: Examined) -> None:
    found = examined("plain>=2\nwants-old-plain\nsympy<1.13\nmover\n")
    assert (4, findings.MOVED_BY_DEPENDENCY) in ruled(found)
    assert (3, findings.NEEDS) in ruled(found)


def test_an_index_that_hides_a_version_is_named_and_the_version_is_followed(
    examined: Examined,
) -> None:
    found = examined("plain==2.0\nmover\n", site="mirrored")
    assert ruled(found) == [(2, findings.MOVED_BY_DEPENDENCY)]
    (note,) = found.notes
    assert note.startswith("r.txt:1: plain==2.0: http://127.0.0.1:")
    assert "has 2.0, and http://127.0.0.1:" in note
    assert found.unknown == ()


def test_an_index_out_of_reach_is_not_determined(monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_requirements("plain\ntorch==2.4\n", path="r.txt")
    site = Site(index_url="http://127.0.0.1:9/simple")
    monkeypatch.setattr(preflighting, "read_site", lambda: site)
    found = examine((read,), (a_stack(),), Silent())
    assert ruled(found) == [(2, findings.MOVED)]
    assert [text for text in found.unknown if "out of reach" in text]
