"""Claims about the Python at hand, for tests beside torch: no host code is imported for them."""

from __future__ import annotations

from warpfront_checks.claims import Claims

CPU = Claims(cell="here", target="cpu", vendor="cpu", device="cpu", image=False)
