"""Ways to compute attention that are wrong in one way each, for the tests of the session."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def flash(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )


def _plain(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.softmax(scores, -1) @ v


def refuses(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    if mask is not None or q.shape[-1] > 256:
        raise NotImplementedError("head_dim must be 256 at most, without a mask")
    return flash(q, k, v, causal, mask)


def wrong(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    """Right but for the widest heads, as one kernel of gfx1151 was (pytorch 189849)."""
    return flash(q, k, v, causal, mask) * (1.02 if q.shape[-1] == 512 else 1.0)


def wrong_backward(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    found = flash(q, k, v, causal, mask)
    return found + 0.02 * (found - found.detach())


def crashes(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    if causal and q.shape[-1] == 128:
        os.kill(os.getpid(), signal.SIGSEGV)
    return flash(q, k, v, causal, mask)


def hangs(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    if causal and q.shape[-1] == 128:
        time.sleep(600)
    return flash(q, k, v, causal, mask)


def another(q: Tensor, k: Tensor, v: Tensor, causal: object, mask: Tensor | None) -> Tensor:
    """Asked for the fused kernel, it answers with the plain way's, and rightly."""
    return _plain(q, k, v, causal, mask)
