"""The task about other people's models: a test of one architecture, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from warpfront.doors.display import Display
from warpfront.doors.tasks.declaring import Option, command


@command
def models(
    display: Display,
    *,
    write: Annotated[str, Option("the file to write, test_qwen3.py say")] = "",
    architecture: Annotated[str, Option("a model_type of transformers: qwen3, llama, t5")] = "",
) -> None:
    """Write a stand-alone pytest file for one architecture of transformers.

    It runs on NVIDIA, AMD, Gaudi or the CPU, and never on another than asked.
    `nox -s models -- --library transformers` runs all architectures here.
    """
    from warpfront.errors import InputError
    from warpfront.pipeline.beside.model_writing import write_model_test

    if not write or not architecture:
        raise InputError(
            "a file and an architecture are needed",
            hint="invoke models --write test_qwen3.py --architecture qwen3",
        )
    display.say(f"wrote {write_model_test(architecture, Path(write))}")
