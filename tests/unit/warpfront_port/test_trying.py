"""What a program did not find, from how it ended, and who brings it."""

from __future__ import annotations

import dataclasses

import pytest

from warpfront.errors import InputError
from warpfront_port.preflight.requirement_files import read_requirements
from warpfront_port.trying.trial import (
    Miss,
    MissAnswer,
    Trial,
    entry_text,
    provider,
    read_misses,
    read_provides,
    requirements_file,
    trial_text,
)

PLAIN = """\
loading
Traceback (most recent call last):
  File "/repo/train.py", line 3, in <module>
    from model import Net
  File "/repo/model.py", line 1, in <module>
    import einops.layers
ModuleNotFoundError: No module named 'einops.layers'; 'einops' is not a package
"""
CAUGHT = """\
Traceback (most recent call last):
  File "/repo/a.py", line 1, in <module>
    import apex
ModuleNotFoundError: No module named 'apex'
going on without apex
Traceback (most recent call last):
  File "/repo/a.py", line 9, in <module>
    main()
ValueError: no data
"""
CHAINED = """\
Traceback (most recent call last):
  File "/lib/x/utils.py", line 7, in need
    import cv2
ModuleNotFoundError: No module named 'cv2'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/repo/a.py", line 2, in <module>
    need()
ImportError: please install opencv
"""
RANKED = "".join(f"[rank1]: {line}\n" for line in PLAIN.splitlines()[1:])
METADATA = """\
Traceback (most recent call last):
  File "/lib/transformers/dependency_versions_check.py", line 57, in <module>
    require("tqdm")
importlib.metadata.PackageNotFoundError: No package metadata was found for Tqdm
"""


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (PLAIN, [("einops", "/repo/model.py:1")]),
        (RANKED, [("einops", "/repo/model.py:1")]),
        (CAUGHT, []),
        (CHAINED, [("cv2", "/lib/x/utils.py:7")]),
        (CAUGHT + CHAINED, [("cv2", "/lib/x/utils.py:7")]),
        ("no traceback, and ModuleNotFoundError: No module named 'x' in a text\n", []),
        ("", []),
    ],
    ids=["plain", "of a rank", "caught", "chained", "the last of two", "words", "nothing"],
)
def test_only_what_ended_the_program_was_missed(output: str, found: list[tuple[str, str]]) -> None:
    assert [(one.top, one.where) for one in read_misses(output)] == found


def test_a_traceback_may_name_a_line_that_no_file_has() -> None:
    odd = PLAIN.replace("line 1,", f"line {'1' * 5000},")
    (miss,) = read_misses(odd)
    assert (miss.top, miss.line) == ("einops", 3)


def test_metadata_that_is_not_there_names_a_distribution() -> None:
    (miss,) = read_misses(METADATA)
    assert (miss.module, miss.distribution) == ("", "tqdm")


def test_a_module_s_distribution_is_named_by_somebody_and_never_guessed() -> None:
    asked = read_requirements(
        "einops>=0.7\nmy-lib[x]==2\nPillow<11\nother @ https://example.test/o.whl\n", path="r.txt"
    ).declared

    def named(module: str, **provides: str) -> tuple[str, str]:
        found = provider(Miss(module=module), asked, provides)
        return found.requirement, found.said_by

    assert named("einops.layers") == ("einops>=0.7", "r.txt:1")
    assert named("my_lib") == ("my-lib[x]==2", "r.txt:2")
    assert named("PIL.Image") == ("Pillow<11", "r.txt:3")
    assert named("cv2") == ("opencv-python-headless", "the table of modules")
    assert named("einops", einops="einops==0.8") == ("einops==0.8", "--provides")
    assert provider(Miss(module="some_module"), asked).requirement == ""
    assert provider(Miss(module="", distribution="tqdm"), ()).name == "tqdm"
    assert provider(Miss(module="", distribution="pyyaml"), ()).name == "pyyaml"
    assert provider(Miss(module="", distribution="my-lib"), asked).said_by == "r.txt:2"
    # A program may print any name, and what is no name.
    for printed in ("tqdm-free-of-charge", "a;b@c", "--index-url", "http://127.0.0.1/x.whl"):
        miss = Miss(module="", distribution=printed)
        assert provider(miss, asked).requirement == ""
    said = Miss(module="", distribution="some-lib")
    assert provider(said, asked, {said.asked: "some-lib==1"}).said_by == "--provides"


def test_what_somebody_provides_is_a_module_and_a_distribution() -> None:
    assert read_provides(["a=b==1"]) == {"a": "b==1"}
    for text in ("a", "=b", "a-b=c", ""):
        with pytest.raises(InputError, match="is not module=distribution"):
            read_provides([text])


EINOPS = MissAnswer(
    miss=Miss(module="einops", path="/repo/m.py", line=1),
    requirement="einops>=0.7",
    said_by="r.txt:1",
    version="0.8.1",
    brings=2,
)
OWN = MissAnswer(miss=Miss(module="net"), folder="src")
REFUSED = MissAnswer(miss=Miss(module="flash_attn"), refusal="it has no wheel", hint="build it")


def a_trial(*found: MissAnswer, exit_code: int | None = 0, installed: bool = True) -> Trial:
    return Trial(
        cell_id="cpu-torch",
        image="torch",
        torch="2.13.0+cpu",
        argv=("python", "train.py"),
        runs=3,
        exit_code=exit_code,
        tail="last words",
        found=found,
        installed=installed,
    )


def test_a_trial_that_works_prints_the_file_and_the_image_to_make() -> None:
    trial = a_trial(EINOPS, OWN)
    assert trial.requirements == ("einops==0.8.1",)
    assert requirements_file(trial).splitlines()[1:] == ["einops==0.8.1"]
    text = trial_text(trial, name="app")
    assert "  no einops (/repo/m.py:1)\n      einops 0.8.1, named by r.txt:1: torch stays" in text
    assert "the project has it: src goes to PYTHONPATH" in text
    assert "it came to its end with what is named above" in text
    assert "last words" not in text
    assert "    parent: torch\n    template: app\n" in entry_text(trial, "app")
    assert "    requirements: images/app/requirements.txt\n" in entry_text(trial, "app")


def test_a_trial_that_fails_says_how_and_what_next() -> None:
    refused = trial_text(a_trial(REFUSED, exit_code=1), name="app")
    assert "it has no wheel\n      hint: build it" in refused
    assert "exit 1; its last words:\n    last words" in refused
    assert "requirements.txt" not in refused
    waiting = trial_text(a_trial(EINOPS, exit_code=1, installed=False), name="app")
    assert "exit 1; --install tries on" in waiting
    assert "it was stopped at its time" in trial_text(a_trial(exit_code=None), name="app")


def test_what_was_installed_is_lacking_no_more_and_words_of_a_program_end_no_line() -> None:
    trial = a_trial(EINOPS, OWN, REFUSED, exit_code=None)
    assert trial.lacking == ("flash_attn",)
    assert a_trial(EINOPS, OWN, exit_code=1, installed=False).lacking == ("einops",)
    odd = dataclasses.replace(trial, argv=("python", "-c", "a = 1\nevil==1.0\n" + "b" * 500))
    (comment, *requirements) = requirements_file(odd).splitlines()
    assert comment.startswith("# What `python -c 'a = 1 evil==1.0 bbb")
    assert requirements == ["einops==0.8.1"]
    assert len(comment) < 300
