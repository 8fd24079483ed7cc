"""The task about models: a library's architectures in images, and a test as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from warpfront import pipeline
from warpfront.cli.display import Display
from warpfront.cli.tasks.declaring import AllowUndetermined, Chosen, Option, Options, command
from warpfront.cli.tasks.showing import print_unfinished, raise_failure, workspace_here
from warpfront.verify.results import Outcome, Verification
from warpfront_checks.architectures.roster import LIBRARY_OPTIONS, Library, read_library

DeclaredRequirement = Annotated[
    Library | None,
    Options(
        {option.attribute: ("", Option(option.help)) for option in LIBRARY_OPTIONS},
        lambda **values: read_library(**values) if values["library"] else None,
    ),
]


@command(example="models --library transformers --image hf")
def models(
    display: Display,
    cells: Chosen,
    *,
    asked: DeclaredRequirement,
    write: Annotated[str, "write a test of --architecture to this file"] = "",
    architecture: Annotated[str, "a model_type of transformers: qwen3, llama, t5"] = "",
    allow_undetermined: AllowUndetermined = False,
) -> None:
    """Run a library's architectures in images, or write a test.

    `--library transformers --image hf` builds each small, with random weights,
    and judges it layer by layer inside the image. `--write` writes a
    stand-alone pytest file, which runs on NVIDIA, AMD, Gaudi or the CPU, and
    never on another than asked.
    """
    from warpfront.commands.model_writing import write_model_test
    from warpfront.errors import InputError

    if asked is not None:
        results = pipeline.verify(workspace_here(display), cells, display, library=asked)
        lines: list[str] = []
        for result in (result for result in results if isinstance(result, Verification)):
            lines.append(f"{result.cell_id} on {result.target}, {result.seconds:.0f} s")
            passed = [check for check in result.checks if check.outcome is Outcome.PASSED]
            rest = (check for check in result.checks if check not in passed)
            lines += (f"  {check.name}: {check.outcome.value}: {check.reason}" for check in rest)
            counts = (check for check in passed if check.name.startswith("count of "))
            lines += (f"  {check.name}: {check.reason}" for check in counts)
        display.result(results, "".join(f"{line}\n" for line in lines))
        print_unfinished(results)
        raise_failure(results)
        return
    if not write or not architecture:
        hint = "warpfront models --write test_qwen3.py --architecture qwen3"
        raise InputError("a file and an architecture are needed, or a library", hint=hint)
    path = write_model_test(architecture, Path(write), allow_undetermined=allow_undetermined)
    display.say(f"wrote {path}")
    display.result({"written": path})
