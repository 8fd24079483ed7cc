"""The text of a trial for people: the missing modules, the requirements that worked, and the
image to make of them. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from warpfront_port.trying.trial import MissAnswer, Trial

TEMPLATE = """\
# {{ cell.id }}: {{ cell.title | words }}
FROM {{ from_reference }}
{% include "_shared/wheels.j2" %}
{% include "_shared/environment.j2" %}
"""


def trial_text(trial: Trial, *, name: str) -> str:
    """Return the whole text; `name` is the name of the image to make."""
    times = "once" if trial.runs == 1 else f"{trial.runs} times"
    lines = [f"{trial.cell_id}, torch {trial.torch}: ran {times}: {trial.said}"]
    for answer in trial.found:
        lines += _found_lines(answer)
    lines += _ending(trial)
    if trial.requirements:
        lines += [f"\nimages/{name}/requirements.txt:", requirements_file(trial)]
        lines += ["images: of matrix.yaml:", entry_text(trial, name)]
    return "\n".join((*lines, ""))


def requirements_file(trial: Trial) -> str:
    """Return the requirements to add to the image, each with its source."""
    head = f"# What `{trial.said}` needs beside {trial.image} with torch {trial.torch}."
    return "\n".join((head, *trial.requirements, ""))


def entry_text(trial: Trial, name: str) -> str:
    """Return the entry for `images:` of matrix.yaml."""
    paths = [answer.folder for answer in trial.found if answer.folder]
    lines = [f"  {name}:", f"    parent: {trial.image}"]
    lines += [f"    template: {name}", f"    title: {name}"]
    if trial.requirements:
        lines.append(f"    requirements: images/{name}/requirements.txt")
    if older := [answer for answer in trial.wanted if answer.replaces]:
        names = ", ".join(f"{answer.requirement_name} {answer.replaces}" for answer in older)
        lines.append(f"    # {trial.image} holds {names}, which a child cannot change: give the")
        lines.append(f"    # requirement to {trial.image} itself, in `packages:`")
    if paths:
        lines.append(f"    # the project has modules of its own in {', '.join(sorted(set(paths)))}")
    return "\n".join((*lines, ""))


def unwritten_text(trial: Trial) -> str:
    """Return the reason why no folder of an image was written."""
    if trial.works:
        return f"nothing to write: {trial.image} serves as it is, by the line above"
    return "nothing to write: no package is missing that --install could bring"


def _found_lines(miss: MissAnswer) -> Iterator[str]:
    missed = miss.miss.module or f"{miss.miss.distribution} (its metadata)"
    where = f" ({miss.miss.where})" if miss.miss.where else ""
    yield f"  no {missed}{where}"
    if miss.folder:
        yield f"      the project has it: {miss.folder} goes to PYTHONPATH"
    elif miss.replaces:
        name = miss.requirement_name
        source = miss.said_by
        yield f"      {name} {miss.replaces} has none; {name} {miss.version} has, of {source}:"
        yield f"      `{miss.requirement}` in its place: torch stays"
    elif miss.version:
        more = f", with {miss.brings} wheels more" if miss.brings else ""
        description = f"{miss.requirement_name} {miss.version}, named by {miss.said_by}"
        yield f"      {description}: torch stays{more}"
    else:
        yield f"      {miss.refusal}"
        if miss.hint:
            yield f"      hint: {miss.hint}"


def _ending(trial: Trial) -> Iterator[str]:
    if trial.works:
        yield "it came to its end" + (" with what is named above" if trial.found else "")
        if not trial.requirements:
            yield f"{trial.image} serves as it is; without `try`, and with the project writable:"
            yield f"    {shlex.join(trial.by_hand)}"
        return
    outcome = "it was stopped at its time" if trial.exit_code is None else f"exit {trial.exit_code}"
    if trial.wanted and not trial.installed:
        yield f"{outcome}; --install tries on with what is named above"
        return
    if not trial.tail.strip():
        yield f"{outcome}; it printed nothing"
        return
    yield f"{outcome}; its last words:"
    yield from (f"    {line}" for line in trial.tail.splitlines())
