"""Admission of images: a cell's results judged by the demands of a channel. `publish` and the
check `required` both decide by `admission`. Admission of publishers: CI jobs of the project's
default branch and of its release tags. Pure.

The presence of a verification proves nothing. A verification counts if its seal is whole, it is
recent, and its content hash and id are the image's. It must also agree with how its job ended, and
each outcome must be a pass or allowed by the channel by name.

A job is described by its variables and, if it can request one, by its OIDC token. Each witness has
to pass by itself: a step can change the variables, but not the token, which the CI service signs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from warpfront.images.labels import BASE_SOURCE, CONTENT_HASH, RELAXED
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.matrix.language import Allowance, Project
from warpfront.matrix.release_channels import Channel
from warpfront.release.origin import (
    GITLAB_CONFIG,
    PUBLISH_WORKFLOW,
    ForgeName,
    KeylessIdentity,
    Origin,
)
from warpfront.verify.results import Outcome, Verification
from warpfront.verify.verdict import is_sealed
from warpfront_checks.check_options import stored_options

_FACTS = ("torch", "toolkit", "python", "machine")
_CLOCK_SKEW = timedelta(minutes=5)
_ALLOWABLE: Sequence[Allowance] = ("unavailable", "emulated", "undetermined", "skipped")
"""Outcomes that a channel may allow. Every other one that is no pass is refused, also one that this
version does not know.
"""
_NO_HARDWARE = frozenset({"unavailable", "emulated", "undetermined"})
"""Allowances by which an image is published and not named after the target."""
_OF_THE_DEVICE = frozenset({"emulated", "undetermined"})
"""What one session finds of the device is so for all of them."""
_SUCCESS = "success"
_FAILED = frozenset({"failure", "failed"})
"""How GitHub and GitLab call a job that ended with an exit code of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Evidence of one image: its labels, the ids that engines and registries use for exactly it,
    and its verifications by target. `unread` is why one cannot be read; `attached` are the digests
    of the documents that they came in, if they came from a registry, where `digest` is the image's.
    `jobs` is how the verifying job of each target ended, by the forge; None where that is not
    known. `image_id` and `size_bytes` are those of an image that is to be published.
    """

    cell: Cell
    labels: Mapping[str, str]
    identities: frozenset[str]
    verifications: Mapping[str, Verification]
    unread: Mapping[str, str] = field(default_factory=dict)
    attached: tuple[str, ...] = ()
    jobs: Mapping[str, str] | None = None
    image_id: str = ""
    size_bytes: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The verdict on an image by the demands of a channel: `against` has the reasons, `noted`
    the findings that the channel let pass. `targets` are the verified targets, which the tags may
    name, `counted` are the verifications of this image that are in time; `facts` is its content.
    """

    cell_id: str
    channel: str
    targets: tuple[str, ...]
    against: tuple[str, ...]
    noted: tuple[str, ...]
    counted: Mapping[str, Verification] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def admitted(self) -> bool:
        return not self.against


@dataclass(frozen=True, slots=True, kw_only=True)
class _Objection:
    """A reason against an image, unless the channel allows it."""

    text: str
    allowed_by: Allowance | None = None
    only_here: bool = False  # no reason against the other targets


def admission(evidence: Evidence, channel: Channel, *, now: str) -> Admission:
    """Return every reason against this image now, and everything that the channel let pass."""
    allow = frozenset(channel.allow)
    objections = []
    if not evidence.labels.get(CONTENT_HASH):
        objections.append(_Objection(text="the image has no content hash: it is none of ours"))
    if evidence.labels.get(BASE_SOURCE) != BaseSource.REGISTRY:
        text = "its base was made by a bootstrap, not pulled by digest"
        objections.append(_Objection(text=text, allowed_by="bootstrap"))
    if relaxed := evidence.labels.get(RELAXED):
        text = f"demands on the torch stack go unmet: {relaxed}"
        objections.append(_Objection(text=text, allowed_by="relaxed"))
    proven, left_out, waived, counted = [], [], False, dict[str, Verification]()
    for target in evidence.cell.targets:
        on_target = [*_on(evidence, target, channel, now=now)]
        blocking = [objection for objection in on_target if objection.allowed_by not in allow]
        if (
            blocking
            and channel.targets == "any"
            and all(objection.only_here for objection in blocking)
        ):
            left_out += [objection.text for objection in blocking]
            continue
        if verification := evidence.verifications.get(target):
            counted[target] = verification
        objections += on_target
        if any(objection.allowed_by in _NO_HARDWARE for objection in on_target):
            waived = True  # published all the same, and not named after this target
        elif not blocking:
            proven.append(target)
    facts, wrong = _facts(counted)
    nothing_else = left_out if not proven and not waived else []
    return Admission(
        cell_id=evidence.cell.id,
        channel=channel.name,
        targets=tuple(proven),
        against=(*(s.text for s in objections if s.allowed_by not in allow), *nothing_else, *wrong),
        noted=(*(s.text for s in objections if s.allowed_by in allow), *left_out),
        counted=counted,
        facts=facts,
    )


def _on(evidence: Evidence, target: str, channel: Channel, *, now: str) -> Iterator[_Objection]:
    """Yield every reason against one target."""
    verification = evidence.verifications.get(target)
    if target in evidence.unread:
        yield _Objection(text=f"{target}: {evidence.unread[target]}")
    elif verification is None:
        yield _Objection(text=f"{target}: not verified", only_here=True)
    elif not is_sealed(verification):
        yield _Objection(text=f"{target}: the verification was changed after it was made")
    elif wrong := (
        _not_of_this(verification, evidence, target)
        or _not_recent(verification, channel, now=now)
        or _not_of_this_job(verification, evidence, target)
    ):
        yield _Objection(text=f"{target}: {wrong}", only_here=True)
    else:
        for objection in _findings(verification, channel):
            yield dataclasses.replace(objection, text=f"{target}: {objection.text}")


def _not_of_this(verification: Verification, evidence: Evidence, target: str) -> str:
    """Return why a verification is not one of this image, "" if it is."""
    if (
        verification.where != "image"
        or verification.cell_id != evidence.cell.id
        or verification.target != target
    ):
        return (
            f"verified was {verification.cell_id} on {verification.target} ({verification.where})"
        )
    if verification.content_hash != evidence.labels.get(CONTENT_HASH):
        return f"verified was another content ({verification.content_hash[:12]})"
    if verification.image_id not in evidence.identities:
        return f"verified was another image ({verification.image_id})"
    return ""


def _not_recent(verification: Verification, channel: Channel, *, now: str) -> str:
    before = verification.environment.get("proven before")
    ends = [verification.ended, *(before.values() if isinstance(before, Mapping) else ())]
    try:
        ages = [datetime.fromisoformat(now) - datetime.fromisoformat(end) for end in ends]
    except (ValueError, TypeError):
        return f"the verification does not say when it was made ({verification.ended!r})"
    if min(ages) < -_CLOCK_SKEW:
        return f"the verification is of the future ({verification.ended}): a clock is wrong"
    if max(ages) > timedelta(hours=channel.max_age_hours):
        hours = int(max(ages).total_seconds() // 3600)
        return f"verified {hours} h ago, {channel.max_age_hours} h at most are taken"
    return ""


def _not_of_this_job(verification: Verification, evidence: Evidence, target: str) -> str:
    """Return why the forge contradicts a verification: a failed job has results with a failure."""
    if evidence.jobs is None:
        return ""
    state = evidence.jobs.get(target)
    if state is None:
        return "the run has no job that verified it"
    passed = all(check.outcome == Outcome.PASSED for check in verification.checks)
    if state == _SUCCESS or (state in _FAILED and not passed):
        return ""
    word = "passed" if passed else "not passed"
    return f"its job ended with {state}, and its results say {word}"


def _findings(verification: Verification, channel: Channel) -> Iterator[_Objection]:
    """Yield what its options did not check, failures of any session, and checks that did
    not run of sessions that are demanded.
    """
    options = stored_options(verification.environment)
    if options is None:
        yield _Objection(text="the verification does not say how much was checked")
    elif options.get("quick") is not False:
        yield _Objection(text="verified by quick checks only", allowed_by="quick", only_here=True)
    if options is not None and options.get("profile") != "strict":
        text = f"verified by the tolerances of {options.get('profile')}"
        yield _Objection(text=text, allowed_by="profile", only_here=True)
    for session in dict.fromkeys((*channel.sessions, *verification.sessions)):
        checks = [check for check in verification.checks if check.session == session]
        if not checks:
            yield _Objection(text=f"{session}: not run", only_here=True)
        # Each kind by itself: leave for one of them is none for another.
        first = {str(check.outcome): check for check in reversed(checks)}
        for outcome in sorted(set(first) - {"passed"}):
            allowed_by = next((name for name in _ALLOWABLE if name == outcome), None)
            demanded = session in channel.sessions or outcome in _OF_THE_DEVICE
            if allowed_by is None or demanded:
                text = f"{session}/{first[outcome].name}: {outcome}: {first[outcome].reason}"
                yield _Objection(text=text, allowed_by=allowed_by, only_here=allowed_by is not None)


def _facts(counted: Mapping[str, Verification]) -> tuple[Mapping[str, str], list[str]]:
    """Return the facts of the image's content, and where its verifications disagree on them."""
    merged: dict[str, str] = {}
    wrong = []
    for target, verification in counted.items():
        facts = verification.environment.get("facts")
        if not isinstance(facts, Mapping) or not all(isinstance(facts.get(n), str) for n in _FACTS):
            wrong.append(f"{target}: the verification does not say what the image holds")
            continue
        wrong += [
            f"{target}: its {name} is {facts[name]}, elsewhere {merged[name]}"
            for name in _FACTS
            if merged.setdefault(name, str(facts[name])) != facts[name]
        ]
    return merged, wrong


# What starts a run that may publish. A child pipeline of GitLab is started by its parent.
# https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows
# https://docs.gitlab.com/ci/jobs/job_rules/#ci_pipeline_source-predefined-variable
_EVENTS: Mapping[ForgeName, frozenset[str]] = {
    "github": frozenset({"schedule", "workflow_dispatch", "push"}),
    "gitlab": frozenset({"schedule", "web", "push", "parent_pipeline"}),
}
_GITHUB_ISSUER = "https://token.actions.githubusercontent.com"


def publishing_refusals(origins: Iterable[Origin], project: Project) -> tuple[str, ...]:
    """Return every reason why this CI job may not publish. Without a CI job there is none."""
    return tuple(dict.fromkeys(text for origin in origins for text in _refusals(origin, project)))


def _refusals(origin: Origin, project: Project) -> Iterator[str]:
    by = "the job's variables" if origin.witness == "variables" else "the job's OIDC token"
    if origin.fault:
        yield f"{by}: {origin.fault}"
        return
    if _address(origin.repository) != _address(project.source):
        yield f"{by}: the run is of {origin.repository or 'no repository'}, not of {project.source}"
    if origin.event not in _EVENTS[origin.forge]:
        yield f"{by}: a run started by `{origin.event}` publishes nothing"
    branch, tags = f"refs/heads/{project.branch}", f"refs/tags/{project.release_tags}"
    if origin.ref != branch and (not origin.ref.startswith(tags) or origin.ref == tags):
        yield (
            f"{by}: {origin.ref or 'a run without a ref'} is neither the branch {project.branch} "
            f"nor a tag {project.release_tags}*"
        )
    elif not origin.protected:
        yield f"{by}: {origin.ref} is not protected"
    if origin.default_branch not in {"", project.branch}:
        yield (
            f"{by}: the default branch is {origin.default_branch}, and `project.branch` of "
            f"matrix.yaml is {project.branch}"
        )
    if origin.forge == "github" and origin.workflow:
        owner = urlsplit(project.source).path.strip("/")
        expected = f"{owner}/{PUBLISH_WORKFLOW}@{origin.ref}"
        if origin.workflow.lower() != expected.lower():
            yield f"{by}: the workflow is {origin.workflow}, and only {expected} publishes"


def _address(repository: str) -> str:
    """Return the address in lower case: CI services ignore case in names of repositories."""
    return repository.rstrip("/").removesuffix(".git").lower()


def keyless_identity(project: Project, forge: ForgeName) -> KeylessIdentity:
    """Return who may have signed an image of this project without a key: one workflow file, at the
    default branch or at a release tag. cosign matches the pattern against the whole identity.
    """
    source = project.source.rstrip("/")
    place = f"{source}/{PUBLISH_WORKFLOW}" if forge == "github" else f"{source}//{GITLAB_CONFIG}"
    branch, tags = re.escape(project.branch), re.escape(project.release_tags)
    refs = rf"refs/(heads/{branch}|tags/{tags}[A-Za-z0-9._+/-]+)"
    parts = urlsplit(source)
    host = f"{parts.scheme}://{parts.netloc}"
    # GitLab's issuer is the instance itself; that of a self-hosted GitHub is in
    # https://docs.github.com/en/enterprise-server/actions/reference/security/oidc.
    issuer = host if forge == "gitlab" else f"{host}/_services/token"
    if forge == "github" and parts.hostname == "github.com":
        issuer = _GITHUB_ISSUER
    return KeylessIdentity(pattern=f"^{re.escape(place)}@{refs}$", issuer=issuer)
