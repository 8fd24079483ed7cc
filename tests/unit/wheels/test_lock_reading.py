"""Locks to the letter: every field of the inputs, the text of a whole lock, and each refusal."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import a_cell
from hypothesis import given
from hypothesis import strategies as st

from warpfront.errors import LockError
from warpfront.matrix.cell import Cell, Compiler, Recipe, RequirementList, Source, WheelIndex
from warpfront.wheels.lock.pylock import difference, dump_lock, lock_inputs, read_lock, staleness
from warpfront.wheels.lock.values import (
    LockedWheel,
    LockInputs,
    RelaxedPackage,
    WheelLock,
)

PATH = "images/locks/pylock.cell.toml"
RELOCK = "make it again: warpfront lock --only <cell>"
COMMIT = "c" * 40
FOLDER = Source(kind="folder", location="kernels", name="kernels")
GIT = Source(kind="git", location="https://git.test/a.git", pin=COMMIT, subdirectory="py")


def a_wheel(name: str, version: str = "1.0", **changes: Any) -> LockedWheel:
    facts: dict[str, Any] = {
        "filename": f"{name.replace('-', '_')}-{version}-py3-none-any.whl",
        "sha256": name.encode().hex().ljust(64, "0")[:64],
        "size_bytes": 7,
        "index": "https://pypi.org/simple",
    }
    return LockedWheel(name=name, version=version, **(facts | changes))


CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH = a_wheel("torch", "2.13.0+cpu", index=CPU_INDEX)
ROCM = a_wheel("rocm", "7.14.0", sdist="rocm-7.14.0.tar.gz", sdist_sha256="d" * 64)
BUILT = a_wheel("kernels", index="", source=str(GIT), sdist="kernels.tar.gz", sdist_sha256="e" * 64)
BY_ADDRESS = a_wheel("addressed", index="", source="https://a.test/addressed-1.0-py3-none-any.whl")
WHOLE = WheelLock(
    cell_id="cell",
    python="3.11",
    inputs_digest="f" * 64,
    wheels=tuple(sorted((TORCH, ROCM, BUILT, BY_ADDRESS))),
    relaxed=(
        RelaxedPackage(package="audio", version="2", reason="no need", unmet=("torch<2",)),
        RelaxedPackage(
            package="vllm", version="1", reason="too narrow", unmet=("torch==2.8", "numpy<2")
        ),
    ),
    builds=(
        Recipe(package="bare", tools=()),
        Recipe(
            package="kernels",
            tools=("ninja==1.13.0",),
            apt=("g++",),
            environment=(("A", "1"), ("B", "2")),
            extensions=("kernels._C",),
        ),
    ),
)
WHOLE_TEXT = f"""\
lock-version = "1.0"
requires-python = "==3.11.*"
created-by = "warpfront"

[[packages]]
name = "addressed"
version = "1.0"

[[packages.wheels]]
path = "addressed-1.0-py3-none-any.whl"
size = 7

[packages.wheels.hashes]
sha256 = "{BY_ADDRESS.sha256}"

[packages.tool.warpfront]
source = "https://a.test/addressed-1.0-py3-none-any.whl"

[[packages]]
name = "kernels"
version = "1.0"

[[packages.wheels]]
path = "kernels-1.0-py3-none-any.whl"
size = 7

[packages.wheels.hashes]
sha256 = "{BUILT.sha256}"

[packages.tool.warpfront]
source = "git+https://git.test/a.git@{COMMIT}#subdirectory=py"
archive = "kernels.tar.gz"
sha256 = "{"e" * 64}"

[[packages]]
name = "rocm"
version = "7.14.0"
index = "https://pypi.org/simple"

[packages.sdist]
path = "rocm-7.14.0.tar.gz"

[packages.sdist.hashes]
sha256 = "{"d" * 64}"

[[packages.wheels]]
path = "rocm-7.14.0-py3-none-any.whl"
size = 7

[packages.wheels.hashes]
sha256 = "{ROCM.sha256}"

[[packages]]
name = "torch"
version = "2.13.0+cpu"
index = "https://download.pytorch.org/whl/cpu"

[[packages.wheels]]
path = "torch-2.13.0+cpu-py3-none-any.whl"
size = 7

[packages.wheels.hashes]
sha256 = "{TORCH.sha256}"

[tool.warpfront]
schema = 1
cell = "cell"
inputs = "{"f" * 64}"

[tool.warpfront.relaxed.audio]
version = "2"
reason = "no need"
unmet = [
    "torch<2",
]

[tool.warpfront.relaxed.vllm]
version = "1"
reason = "too narrow"
unmet = [
    "torch==2.8",
    "numpy<2",
]

[tool.warpfront.builds.bare]

[tool.warpfront.builds.kernels]
tools = [
    "ninja==1.13.0",
]
apt = [
    "g++",
]
extensions = [
    "kernels._C",
]

[tool.warpfront.builds.kernels.environment]
A = "1"
B = "2"
"""


def refusal(text: str, path: str = PATH) -> LockError:
    with pytest.raises(LockError) as caught:
        read_lock(text, path=path)
    return caught.value


def edited(old: str, new: str) -> str:
    assert old in WHOLE_TEXT, old
    return WHOLE_TEXT.replace(old, new)


def test_a_whole_lock_is_written_to_the_letter() -> None:
    assert dump_lock(WHOLE) == WHOLE_TEXT


def test_a_whole_lock_is_read_with_everything_it_says() -> None:
    assert read_lock(WHOLE_TEXT, path=PATH) == WHOLE


def test_the_order_of_what_was_found_and_relaxed_and_built_does_not_show() -> None:
    turned = dataclasses.replace(
        WHOLE,
        wheels=WHOLE.wheels[::-1],
        relaxed=WHOLE.relaxed[::-1],
        builds=WHOLE.builds[::-1],
    )
    assert dump_lock(turned) == WHOLE_TEXT


def test_a_lock_is_read_in_order_whatever_the_order_of_its_text() -> None:
    packages = WHOLE_TEXT.partition("[tool.warpfront]\n")[0].split("[[packages]]\n")
    turned = "[[packages]]\n".join([packages[0], *packages[:0:-1]])
    own = "[tool.warpfront]\n" + WHOLE_TEXT.partition("[tool.warpfront]\n")[2]
    assert read_lock(turned + own, path=PATH) == WHOLE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[tool.warpfront", "[tool.other", "no [tool.warpfront]: not a lock of ours"),
        ("schema = 1", "schema = 2", "schema 2, this warpfront reads 1"),
        ("schema = 1\n", "", "schema None, this warpfront reads 1"),
        ('cell = "cell"', "cell = 1", "[tool.warpfront] has no cell"),
        ('cell = "cell"', 'cell = ""', "[tool.warpfront] has no cell"),
        (f'inputs = "{"f" * 64}"', "", "[tool.warpfront] has no inputs"),
        ("==3.11.*", ">=3.11", "requires-python must be ==X.Y.*"),
        ("==3.11.*", "==3.11", "requires-python must be ==X.Y.*"),
        ('requires-python = "==3.11.*"\n', "", "requires-python must be ==X.Y.*"),
        ('reason = "no need"', 'reason = ""',
         "relaxed.audio: reason: String should have at least 1 character"),
        ('version = "2"\n', "", "relaxed.audio: version: Field required"),
        ('unmet = [\n    "torch<2",\n]', "unmet = 1",
         "relaxed.audio: unmet: Input should be a valid tuple"),
        ('unmet = [\n    "torch<2",\n]', "unmet = [1]",
         "relaxed.audio: unmet.0: Input should be a valid string"),
        ('unmet = [\n    "torch<2",\n]', "", "relaxed.audio: unmet: Field required"),
        ('tools = [\n    "ninja==1.13.0",\n]', "tools = 1",
         "builds.kernels: tools: Input should be a valid tuple"),
        ('apt = [\n    "g++",\n]', "apt = [1]",
         "builds.kernels: apt.0: Input should be a valid string"),
        ('extensions = [\n    "kernels._C",\n]', 'extensions = "a"',
         "builds.kernels: extensions: Input should be a valid tuple"),
        ('path = "torch-', 'path = "/srv/torch-',
         "torch: its wheel is not named by its bare file name"),
        ('path = "torch-', "path = 'c:\\torch-",
         "torch: its wheel is not named by its bare file name"),
        ('path = "torch-', 'url = "https://a.test/torch-',
         "torch: its wheel is not named by its bare file name"),
        (
            'path = "torch-',
            'url = "https://a.test/torch-2.13.0+cpu-py3-none-any.whl"\npath = "torch-',
            "torch: its wheel is not named by its bare file name",
        ),
        (TORCH.sha256, "a" * 63, "torch: no sha256"),
        (TORCH.sha256, "a" * 65, "torch: no sha256"),
        (TORCH.sha256, "A" * 64, "torch: no sha256"),
        (f'sha256 = "{TORCH.sha256}"', f'md5 = "{TORCH.sha256}"', "torch: no sha256"),
        (f'sha256 = "{"d" * 64}"', f'md5 = "{"d" * 64}"', "rocm: no sha256"),
        (f'sha256 = "{"e" * 64}"\n', "", "kernels: no sha256"),
        ('index = "https://download.pytorch.org/whl/cpu"\n', "", "torch: no size or no index"),
        ('source = "https://a.test/addressed-1.0-py3-none-any.whl"', "",
         "addressed: no size or no index"),
        ('name = "addressed"\n', 'name = "addressed"\nindex = "https://pypi.org/simple"\n',
         "addressed: no size or no index"),
        ('archive = "kernels.tar.gz"', 'archive = "../kernels.tar.gz"',
         "kernels: its archive is not named by a bare file name"),
        ('archive = "kernels.tar.gz"', "archive = 'a\\kernels.tar.gz'",
         "kernels: its archive is not named by a bare file name"),
        ('archive = "kernels.tar.gz"', "archive = 1",
         "kernels: archive: Input should be a valid string"),
    ],
)  # fmt: skip
def test_a_lock_that_is_not_right_says_where_what_and_what_next(
    old: str, new: str, message: str
) -> None:
    text = edited(old, new)
    if new.startswith("path = 'c:"):
        text = text.replace('+cpu-py3-none-any.whl"', "+cpu-py3-none-any.whl'")
    error = refusal(text)
    assert (error.message, error.hint) == (f"{PATH}: {message}", RELOCK)


@pytest.mark.parametrize("key", ["relaxed", "builds"])
def test_what_was_relaxed_or_built_must_be_a_table(key: str) -> None:
    text = WHOLE_TEXT.partition("[tool.warpfront.relaxed")[0] + f"{key} = [1]\n"
    error = refusal(text)
    where = f"{PATH}: [tool.warpfront] {key}"
    assert error.message == f"{where}: Input should be a valid dictionary"
    assert error.hint == RELOCK


def test_what_one_package_relaxes_must_be_a_table_too() -> None:
    text = WHOLE_TEXT.partition("[tool.warpfront.relaxed")[0] + "relaxed = {vllm = 1}\n"
    error = refusal(text)
    where = f"{PATH}: [tool.warpfront] relaxed: vllm"
    assert error.message == f"{where}: Input should be a valid dictionary"
    assert error.hint == RELOCK


def test_a_wheel_of_less_than_nothing_is_refused() -> None:
    before, _, after = WHOLE_TEXT.rpartition("size = 7\n")
    error = refusal(f"{before}size = -7\n{after}")
    assert (error.message, error.hint) == (f"{PATH}: torch: no size or no index", RELOCK)


def test_a_wheel_without_a_size_is_refused() -> None:
    before, found, after = WHOLE_TEXT.rpartition("size = 7\n")
    assert found
    error = refusal(before + after)
    assert (error.message, error.hint) == (f"{PATH}: torch: no size or no index", RELOCK)


def test_more_than_one_wheel_of_a_package_and_none_are_refused() -> None:
    message = f"{PATH}: addressed: not exactly one wheel"
    wheel = WHOLE_TEXT.partition("[[packages.wheels]]")[2].partition("[packages.tool")[0]
    twice = f"[[packages.wheels]]{wheel}\n[packages.tool"
    error = refusal(WHOLE_TEXT.replace("[packages.tool", twice, 1))
    assert (error.message, error.hint) == (message, RELOCK)
    vcs = f"[packages.vcs]\ntype = 'git'\nurl = 'https://a.test'\ncommit-id = '{COMMIT}'\n"
    error = refusal(WHOLE_TEXT.replace(f"[[packages.wheels]]{wheel}", vcs, 1))
    assert (error.message, error.hint) == (message, RELOCK)


def test_what_is_no_toml_or_no_lock_is_refused_with_the_way_out() -> None:
    for text in ("[[packages]", WHOLE_TEXT.replace('"1.0"\nreq', '"9.0"\nreq'), "a = 1"):
        error = refusal(text)
        assert error.message.startswith(f"{PATH}: ")
        assert error.hint == RELOCK
    bare = 'lock-version = "1.0"\ncreated-by = "x"\npackages = []\n'
    assert refusal(bare).message == f"{PATH}: no [tool.warpfront]: not a lock of ours"


def test_a_name_that_no_lock_may_have_says_which_ones_it_may() -> None:
    error = refusal(WHOLE_TEXT, path="pylock.a.b.toml")
    assert error.message == "pylock.a.b.toml: not a name for a lock"
    assert error.hint == "use pylock.<cell>.toml, no dots"


def test_a_lock_that_would_not_be_valid_is_not_written() -> None:
    twisted = dataclasses.replace(
        WHOLE, wheels=(a_wheel("torch", filename="numpy-1-py3-none-any.whl"),)
    )
    with pytest.raises(LockError, match=r"^cell: the lock would not be valid: ."):
        dump_lock(twisted)


names = st.text("abcdefgh", min_size=1, max_size=8)
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
wheels = st.builds(
    lambda name, number, sha256, size: a_wheel(
        name, f"{number}.0", sha256=sha256, size_bytes=size
    ),
    names, st.integers(0, 99), hashes, st.integers(0, 2**40),
)  # fmt: skip


@given(st.lists(wheels, max_size=5, unique_by=lambda wheel: wheel.name))
def test_every_lock_reads_back_as_it_was(found: list[LockedWheel]) -> None:
    lock = dataclasses.replace(WHOLE, wheels=tuple(sorted(found)))
    assert read_lock(dump_lock(lock), path=PATH) == lock


RECIPE = Recipe(package="kernels", tools=("ninja",))
CELL = a_cell(
    relax={"vllm": "too narrow", "audio": "of this image"},
    requirements=("pip", "einops"),
    compiler=Compiler(requirements=("nvcc==13", "einops")),
    builds=(RECIPE,),
)


def test_the_inputs_of_a_lock_are_everything_that_it_depends_on() -> None:
    asked = RequirementList(requirements=("timm", "pip"), sources=(FOLDER, GIT))
    inputs = lock_inputs(CELL, asked, WHOLE, folders={"kernels": "a" * 64, "other": "b" * 64})
    assert inputs == LockInputs(
        cell_id=CELL.id,
        python="3.11",
        machine="x86_64",
        glibc="2.36",
        index=WheelIndex(name="cpu", url="https://download.pytorch.org/whl/cpu"),
        stack_requirements=("torch==2.13.0+cpu",),
        requirements=("einops", "nvcc==13", "pip", "timm"),
        parent=("addressed==1.0", "kernels==1.0", "rocm==7.14.0", "torch==2.13.0+cpu"),
        relax=(("audio", "of this image"), ("vllm", "too narrow")),
        sources=(dataclasses.replace(FOLDER, pin="a" * 64), GIT),
        builds=(RECIPE,),
        toolkit="cpu",
        protected=("torch", "torchvision", "torchaudio"),
        libraries=(),
    )


def test_the_inputs_of_a_cell_that_asks_for_nothing_are_its_stack() -> None:
    inputs = lock_inputs(a_cell(requirements=()), None, None)
    assert (inputs.requirements, inputs.parent, inputs.relax, inputs.sources) == ((), (), (), ())


def test_what_a_parent_relaxes_stays_relaxed_unless_the_image_says_otherwise() -> None:
    own = dataclasses.replace(CELL, relax={"audio": "of this image"})
    assert lock_inputs(own, None, WHOLE).relax == (
        ("audio", "of this image"),
        ("vllm", "too narrow"),
    )


def test_a_folder_that_nobody_measured_has_no_pin() -> None:
    asked = RequirementList(sources=(FOLDER,))
    for folders in (None, {}, {"other": "b" * 64}):
        assert lock_inputs(CELL, asked, None, folders=folders).sources == (FOLDER,)


def vendors_cell(vendor: str, **changes: Any) -> Cell:
    return a_cell(vendor=vendor, compiler=None, **changes)


@pytest.mark.parametrize(
    ("vendor", "toolkit", "some"),
    [("nvidia", "cuda", "triton"), ("amd", "rocm", "triton-rocm"), ("gaudi", "synapseai", "torch")],
)
def test_the_vendor_says_what_is_protected_and_which_toolkit_it_is(
    vendor: str, toolkit: str, some: str
) -> None:
    inputs = lock_inputs(vendors_cell(vendor), None, None)
    assert inputs.toolkit == toolkit
    assert some in inputs.protected


def test_the_libraries_that_torch_loads_are_the_vendor_s() -> None:
    assert any("cudnn" in one or "nvidia" in one for one in
               lock_inputs(vendors_cell("nvidia"), None, None).libraries)  # fmt: skip


INPUTS = LockInputs(
    cell_id="cell",
    python="3.11",
    machine="x86_64",
    glibc="2.36",
    index=WheelIndex(name="cpu", url=CPU_INDEX),
    stack_requirements=("torch==2.13.0+cpu",),
    requirements=("rocm",),
    relax=(("audio", "no need"), ("vllm", "too narrow")),
    sources=(GIT,),
)
SEEN = dataclasses.replace(WHOLE, inputs_digest=INPUTS.digest)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"python": "3.12"}, "it was made for Python 3.11, the matrix says 3.12"),
        ({"stack_requirements": ("torch==2.14",)},
         "it has torch 2.13.0+cpu, the matrix asks for torch==2.14"),
        ({"stack_requirements": ("Torch_Audio==1",)},
         "it has no Torch_Audio, the matrix asks for Torch_Audio==1"),
        ({"parent": ("rocm==7.13",)}, "it has rocm 7.14.0, the matrix asks for rocm==7.13"),
        ({"parent": ("numpy==1",)}, "it has no numpy, the matrix asks for numpy==1"),
        ({"requirements": ("rocm", "einops>=0.8")}, "it has no einops, which is now required"),
        ({"relax": (("audio", "no need"),)}, "it relaxes vllm, the matrix no longer does"),
        ({"relax": (("vllm", "too narrow"),)}, "it relaxes audio, the matrix no longer does"),
        ({"relax": (("audio", "why"), ("vllm", "too narrow"))},
         "it relaxes audio for another reason than the matrix gives"),
        ({"sources": (GIT, FOLDER)}, "it has nothing from ./kernels, which is now required"),
        ({"sources": (dataclasses.replace(GIT, pin="d" * 40),)},
         (f"it has nothing from git+https://git.test/a.git@{'d' * 40}#subdirectory=py,"
         " which is now required")),
    ],
)  # fmt: skip
def test_a_stale_lock_says_in_words_what_changed(changes: dict[str, Any], reason: str) -> None:
    assert staleness(SEEN, dataclasses.replace(INPUTS, **changes)) == reason


def test_a_change_that_has_no_words_is_told_by_its_digests() -> None:
    changed = dataclasses.replace(
        INPUTS, glibc="2.31", requirements=("einops; python_version<'3'",)
    )
    assert staleness(SEEN, changed) == (
        f"its inputs changed ({INPUTS.digest[:12]} -> {changed.digest[:12]})"
    )


def test_a_name_is_found_in_a_lock_however_it_is_spelled() -> None:
    odd = dataclasses.replace(
        INPUTS, stack_requirements=("ToRch==2.13.0+cpu",), requirements=("RoCm>=1",)
    )
    assert staleness(SEEN, odd).startswith("its inputs changed")


def test_a_version_before_a_release_answers_a_requirement_that_names_it() -> None:
    early = dataclasses.replace(SEEN, wheels=(a_wheel("torch", "2.14.0.dev1"),))
    asked = dataclasses.replace(
        INPUTS, stack_requirements=("torch>=2.13",), requirements=(), sources=(), relax=()
    )
    assert "torch" not in staleness(early, asked)


def test_a_folder_of_sources_that_changed_makes_a_lock_stale() -> None:
    pinned = dataclasses.replace(FOLDER, pin="e" * 64)
    built = dataclasses.replace(BUILT, source="./kernels")
    lock = dataclasses.replace(SEEN, wheels=(TORCH, ROCM, built))
    same = dataclasses.replace(INPUTS, sources=(pinned,))
    assert staleness(lock, same).startswith("its inputs changed")
    changed = dataclasses.replace(INPUTS, sources=(dataclasses.replace(pinned, pin="a" * 64),))
    assert staleness(lock, changed) == "./kernels has changed since"


def test_a_child_s_wheels_are_what_it_adds_in_order() -> None:
    parent = dataclasses.replace(WHOLE, cell_id="parent", wheels=(TORCH,))
    child = dataclasses.replace(WHOLE, wheels=(TORCH, ROCM, BUILT))
    assert difference(child, parent) == (BUILT, ROCM)
    assert difference(parent, parent) == ()


@pytest.mark.parametrize(
    ("wheels", "here"),
    [
        ((ROCM,), "nothing"),
        (
            (dataclasses.replace(TORCH, sha256="9" * 64),),
            f"torch-2.13.0+cpu-py3-none-any.whl ({'9' * 12})",
        ),
        (
            (a_wheel("torch", "2.14.0", sha256=TORCH.sha256),),
            f"torch-2.14.0-py3-none-any.whl ({TORCH.sha256[:12]})",
        ),
    ],
)
def test_a_child_that_has_other_wheels_than_its_parent_is_refused(
    wheels: tuple[LockedWheel, ...], here: str
) -> None:
    parent = dataclasses.replace(WHOLE, cell_id="parent", wheels=(TORCH,))
    child = dataclasses.replace(WHOLE, cell_id="child", wheels=wheels)
    with pytest.raises(LockError) as caught:
        difference(child, parent)
    assert caught.value.message == (
        f"child: torch is torch-2.13.0+cpu-py3-none-any.whl ({TORCH.sha256[:12]}) in its "
        f"parent parent, and {here} here"
    )
    assert caught.value.hint == "lock parent first, then child"
