"""A verification's seal: the digest of all its parts, so that one that was edited, or put together
of two, is told from one that was made. Pure.

A seal is no signature: who edits both goes unseen here. What is published carries the seals in
what is signed, and is held against them there.
"""

from __future__ import annotations

import dataclasses

from warpfront.model import Verification, digest_of
from warpfront.verify.verdict import verification_document


def sealed(verification: Verification, *, ended: str) -> Verification:
    """The verification, ended at that time, with its seal."""
    dated = dataclasses.replace(verification, ended=ended, seal="")
    return dataclasses.replace(dated, seal=_seal(dated))


def is_sealed(verification: Verification) -> bool:
    """Whether the seal is that of these very parts."""
    return bool(verification.seal) and verification.seal == _seal(verification)


def _seal(verification: Verification) -> str:
    document = verification_document(verification)
    return digest_of({name: part for name, part in document.items() if name != "seal"})
