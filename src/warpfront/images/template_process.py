"""Templates rendered in a child process with limits of time and memory: a pull request may
change a template. Edge.

One child renders all cells of a run. A limit ends it, and another child goes on with the rest; a
template that broke the limit is not rendered again in that run.
"""

from __future__ import annotations

import base64
import copyreg
import json
import pickle
import resource
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from warpfront.errors import BlockedError, CommandFailedError, RenderError
from warpfront.system.digests import frozen
from warpfront.system.process import Command, Completed, run
from warpfront.system.tree_files import ImageFile, Unreadable

# Rendering waits for nothing, so that a child that takes no processor time is stopped or swapped.
_WALL_SECONDS = 600.0
_HINT = "simplify the template: it may loop over a cell's own values, and repeat nothing else"


# Of processor time for each Dockerfile, and of a child's memory (address space).
_CPU_SECONDS, _MEMORY_BYTES = 5, 512 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """A Dockerfile to render: its template's folder and variables; `label` ends an error."""

    folder: str
    variables: Mapping[str, object]
    label: str = ""


Rendered = str | RenderError | BlockedError


def render_templates(
    sources: Mapping[str, ImageFile | Unreadable],
    requests: Sequence[RenderRequest],
    cpu_seconds: int = _CPU_SECONDS,
) -> list[Rendered]:
    """Return the text of each request, or why there is none. A broken limit fails one template."""
    results: dict[int, Rendered] = {}
    files = {}
    for name, file in sources.items():
        is_long = isinstance(file, ImageFile) and len(file.content) > _LONGEST_TEMPLATE
        reason = f"larger than a template may be ({_LONGEST_TEMPLATE:,} bytes)"
        files[name] = Unreadable(reason=reason) if is_long else file
    pending = list(range(len(requests)))
    while pending:
        payload = (files, [requests[index] for index in pending], cpu_seconds)
        # -P: nothing of the project's own folder is imported.
        command = Command(
            argv=(sys.executable, "-P", "-m", __name__),
            stdin=base64.b64encode(pickle.dumps(payload)).decode(),
            timeout_seconds=_WALL_SECONDS,
        )
        completed = run(command)
        # What follows the last line's end was cut off.
        answers = [json.loads(line) for line in completed.stdout.split("\n")[:-1]]
        results |= zip(pending, map(_read, answers), strict=False)
        pending = pending[len(answers) :]
        if pending:
            first, why = pending[0], _why_ended(completed, cpu_seconds)
            for index in pending:
                if requests[index].folder == requests[first].folder:
                    reason = why if index == first else f"{why} for another cell"
                    where = f"images/{requests[index].folder}/Dockerfile.j2"
                    message = f"{where}: {reason}{requests[index].label}"
                    results[index] = RenderError(message, hint=_HINT)
            pending = [index for index in pending if index not in results]
    return [results[index] for index in range(len(requests))]


# Read-only mappings, for which pickle has no rule.
copyreg.pickle(MappingProxyType, lambda mapping: (frozen, (dict(mapping),)))  # type: ignore[arg-type, return-value]


def _read(answer: Mapping[str, str]) -> Rendered:
    """Return the child's answer, only as JSON, because it ran a foreign template."""
    if "text" in answer:
        return str(answer["text"])
    kind = BlockedError if answer.get("kind") == "blocked" else RenderError
    return kind(str(answer.get("message")), hint=str(answer.get("hint", "")))


def _why_ended(completed: Completed, cpu_seconds: int) -> str:
    """Why a child ended in a template. Raise `CommandFailedError` if no template is the reason."""
    code = completed.returncode
    if code == -signal.SIGXCPU:
        return f"it takes more than {cpu_seconds} s"
    if code == _OUT_OF_MEMORY:
        return f"it takes more than {_MEMORY_BYTES >> 20} MiB of memory"
    if code < 0:
        return f"it crashes the interpreter ({signal.Signals(-code).name})"
    raise CommandFailedError(
        f"templates could not be rendered: {completed.stderr.strip()[-1000:]}",
        hint="is this warpfront installed whole?",
    )


_OUT_OF_MEMORY = 3
_LONGEST_TEMPLATE = 1 << 20


def main() -> None:
    """Render what comes on stdin, one line of JSON for each request, in order."""
    from warpfront.images.templating import Renderer  # noqa: PLC0415 - the parent needs no Jinja2

    sources, requests, cpu_seconds = pickle.loads(base64.b64decode(sys.stdin.buffer.read()))  # noqa: S301
    renderer = Renderer(sources)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_AS, _MEMORY_BYTES)
    for request in requests:
        _lower(resource.RLIMIT_CPU, int(time.process_time()) + 1 + cpu_seconds)
        try:
            text = renderer.render(request.folder, request.variables, label=request.label)
            line = json.dumps({"text": text})
        except MemoryError:
            sys.exit(_OUT_OF_MEMORY)
        except (RenderError, BlockedError) as error:
            kind = "blocked" if isinstance(error, BlockedError) else "render"
            line = json.dumps({"kind": kind, "message": error.message, "hint": error.hint})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _lower(which: int, limit: int) -> None:
    """Set a limit, or leave the machine's own where that is lower."""
    _, most = resource.getrlimit(which)
    soft = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(which, (soft, most))


if __name__ == "__main__":
    main()
