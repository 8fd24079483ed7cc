"""The CI job that wants to publish, and the identity that keyless signatures name. Words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ForgeName = Literal["github", "gitlab"]

PUBLISH_WORKFLOW = ".github/workflows/warpfront-publish.yml"
"""The only generated workflow that signs. GitHub names it in the certificate of a signature."""
GITLAB_CONFIG = ".gitlab-ci.yml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A CI job as one witness describes it: `witness` is the job's variables, or its OIDC token.

    `repository` is the project's address, `ref` the full ref (refs/heads/main). `default_branch` is
    empty where the witness does not name it. `workflow` is `path@ref` of the workflow file, which
    only a token names. `fault` is the reason why the witness could not be read.
    """

    forge: ForgeName
    witness: Literal["variables", "token"]
    event: str = ""
    repository: str = ""
    ref: str = ""
    protected: bool = False
    default_branch: str = ""
    workflow: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessIdentity:
    """The identity that may sign without a key: a pattern of identities, and the exact issuer."""

    pattern: str
    issuer: str
