"""The seal of a verification: a digest of all its parts, which shows an edited or mixed one. Pure.

A seal is no signature: an edit of both is not seen here. Published evidence has its seals in the
signed part, and is compared with them there.
"""

from __future__ import annotations

import dataclasses

from warpfront.system.digests import digest_of
from warpfront.verify.results import Verification
from warpfront.verify.verdict import verification_document


def sealed(verification: Verification, *, ended: str) -> Verification:
    """Return the verification, ended at that time, with its seal."""
    dated = dataclasses.replace(verification, ended=ended, seal="")
    return dataclasses.replace(dated, seal=_seal(dated))


def is_sealed(verification: Verification) -> bool:
    """Return true if the seal is that of these parts."""
    return bool(verification.seal) and verification.seal == _seal(verification)


def _seal(verification: Verification) -> str:
    document = verification_document(verification)
    return digest_of({name: part for name, part in document.items() if name != "seal"})
