"""The text of an example: attention by the first of several ways that takes a case. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_HEAD = '''"""Attention by the first way that takes it, in their measured order on {target}.

{measured}
Each was right there, forward and backward, by warpfront's `attention` session. Copy this file;
it needs torch, and of libraries only what is installed.
"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
'''
_BACKENDS: Mapping[str, str] = {
    "sdpa flash": "FLASH_ATTENTION",
    "sdpa efficient": "EFFICIENT_ATTENTION",
    "sdpa cudnn": "CUDNN_ATTENTION",
    "sdpa math": "MATH",
}
_LIBRARY = """
def {function}(q, k, v, causal, mask):
    import {module}

    if mask is not None:
        raise RuntimeError("{module} takes no mask")
    swapped = [x.transpose(1, 2) for x in (q, k, v)]
    found = {module}.flash_attn_func(*swapped, causal=causal)
    return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)
"""
_DOT_PRODUCT = """
def {function}(q, k, v, causal, mask):
    grouped = {{"enable_gqa": True}} if q.shape[1] != k.shape[1] else {{}}
    with sdpa_kernel([SDPBackend.{backend}]):
        return scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, **grouped
        )
"""
_FLEX = """
def {function}(q, k, v, causal, mask):
    from torch.nn.attention.flex_attention import flex_attention

    if mask is not None:
        raise RuntimeError("flex takes a mask as code")

    def later(score, batch, head, row, column):
        return torch.where(row >= column, score, -float("inf"))

    return torch.compile(flex_attention, dynamic=False)(
        q, k, v, score_mod=later if causal else None, enable_gqa=q.shape[1] != k.shape[1]
    )
"""
_TAIL = '''
WAYS = ({names},)


def attention(q, k, v, *, causal=False, mask=None):
    """(batch, heads, length, width) tensors. What every way refuses is an error that says why."""
    refusals = []
    for way in WAYS:
        try:
            return way(q, k, v, causal, mask)
        except (ImportError, NotImplementedError, RuntimeError) as error:
            if "error: " in str(error) and ("CUDA" in str(error) or "HIP" in str(error)):
                raise
            refusals.append(f"{{way.__name__}}: {{error}}")
    raise RuntimeError("no way takes this case:\\n" + "\\n".join(refusals))
'''
MOST_TIERS = 3


def fallback_text(target: str, measured: Sequence[tuple[str, float]]) -> str:
    """Return Python for the fastest of `measured` (tier and seconds, any order): three, and the
    plain way last where it is not among them, since it takes every case.
    """
    ordered = sorted(measured, key=lambda pair: pair[1])
    fastest = [name for name, _ in ordered][:MOST_TIERS]
    if "sdpa math" not in fastest and any(name == "sdpa math" for name, _ in ordered):
        fastest = [*fastest[: MOST_TIERS - 1], "sdpa math"]
    times = "\n".join(f"* {name}: {1000 * seconds:.3g} ms" for name, seconds in ordered)
    parts = [_HEAD.format(target=target, measured=f"{times}\n"), *map(_way, fastest)]
    names = ", ".join(map(_function, fastest))
    return "\n".join([*parts, _TAIL.format(names=names)])


def _way(name: str) -> str:
    if name == "flex":
        return _FLEX.format(function=_function(name))
    if name in _BACKENDS:
        return _DOT_PRODUCT.format(function=_function(name), backend=_BACKENDS[name])
    return _LIBRARY.format(function=_function(name), module=name.replace("-", "_"))


def _function(name: str) -> str:
    return f"by_{name.replace(' ', '_').replace('-', '_')}"
