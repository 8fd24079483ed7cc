"""`python -m warpfront_checks.compiling --job FILE --results FOLDER`: compile a job."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from warpfront_checks.compiling.job import read_job
from warpfront_checks.compiling.job_run import CompileJobRun
from warpfront_checks.results import Recorder

SESSION = "compile"


def main(arguments: list[str]) -> int:
    """Compile the sources of a job; the results folder gets `compile.json` and stored files."""
    parser = argparse.ArgumentParser(prog="python -m warpfront_checks.compiling")
    parser.add_argument("--job", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args(arguments)
    job = read_job(options.job)
    recorder = Recorder(session=SESSION, target=job.target, folder=options.results)
    CompileJobRun(job=job, results=options.results).record(recorder)
    return 0 if recorder.finish() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
