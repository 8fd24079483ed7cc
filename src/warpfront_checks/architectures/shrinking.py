"""A small configuration of the same shape from one of `transformers`. Has no names of
architectures, and needs neither torch nor a network. Pure.

An attribute's meaning follows from its name, its value and its neighbours: one layer of each kind
stays, heads go on dividing widths, grouped heads stay grouped, and a token's number stays below
the vocabulary's size. There are several ways to shrink (`MANNERS`): the caller takes the first
that the library accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

VOCABULARY, POSITIONS, WINDOW, IMAGE, PATCH, BANDS, LAYERS = 128, 96, 8, 32, 8, 16, 2


@dataclass(frozen=True)
class Manner:
    """A way to shrink. `exact` divides all widths by one number and all heads by another, so
    that all products of them remain equal; else each name has its size. `filled` gives None a size
    as well. `of_each_kind` is the number of layers of a kind that remain. `wide` false retains
    widths: only depth and vocabulary are cut.
    """

    name: str
    heads: int = 4
    head: int = 8
    of_each_kind: int = 1
    exact: bool = False
    filled: bool = False
    wide: bool = True

    @property
    def width(self) -> int:
        return self.heads * self.head


MANNERS = (
    Manner("sizes by name"),
    Manner("in proportion", exact=True),
    Manner("what is None filled in", filled=True),
    Manner("two layers of each kind", of_each_kind=2),
    Manner("wider", head=16),
    Manner("wider, in proportion", exact=True, heads=8, head=16),
    Manner("in proportion, filled in", exact=True, filled=True),
    Manner("few heads, but as wide as usual", heads=2, head=128),
    Manner("as it is, but shallow", wide=False),
)
_MOST_KINDS = 4
_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
_SAME: Any = object()

_TOKEN = re.compile(r"token_(id|ids|index|idx)$|(?<!per)_token$")
# What is no size, though its name may end like one.
_NO_SIZE = re.compile(
    r"(_id|_ids|index|idx|kernel\w*|stride\w*|padding|dilation|version|bits|seed|\w*in_channels|"
    r"num_channels|audio_channels|num_labels|_type|_every|_step|interval|freq\w*|factor|ratios?|expand|scale|"
    r"\w*_rate|temporal_patch_size|tubelet\w*|merge_size|num_codebooks|num_quantizers|"
    r"axis|alpha|beta|theta|scaling|\w*scale_depth\w*|fraction|shift|\w*multiplier|num_frames|\w*tokenizer_chunk_size)$"
)
_DEPTH = re.compile(
    r"^depth$|^n_layers?$|(^|_)(num_)?(hidden_)?layers?$|_blocks$|^num_(encoder|decoder)_layers$"
)
_NO_DEPTH = re.compile(
    r"first|last|skip|shared|dense|per_|replace|full|aux|window|drop|index|start"
)
# Numbers of layers of another kind at one end: one layer covers the kind.
_SHARED = re.compile(r"shared_layers$")
_SOME_LAYERS = re.compile(
    rf"^first_k_dense|^num_dense_layers$|^num_(first|last)\w*_layers$|{_SHARED.pattern}"
)
_HEADS = re.compile(r"(^|_)(n_?|num_)?heads?$|^nhead$|head_nums?$|_heads_|num_head_groups")
_GROUPED = re.compile(r"kv|key_value|num_key|query_group|head_groups")
_HEAD = re.compile(
    r"head_?dim|head_size|d_kv|kv_channels|qk_\w*dim|rope_dim|d_head|headdim|key_dim|value_dim|"
    r"head_width|attention_key_size"
)
_POINTS_AT_LAYERS = re.compile(
    r"layer_ids|layer_idx|layers_idx|layer_ind|_layers$|_indexes$|indices$|idxs$"
)
_WIDE = re.compile(r"intermediate|ffn|d_ff|inner|mlp|feed_?forward|ff_dim")
_WIDTH = re.compile(r"size|dim|width|d_model|n_embd|channels|embed|hidden|features|planes|filters")
# In this order: the new number of an attribute with such a name.
_LIMITS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), limit)
    for pattern, limit in (
        (r"vocab|num_embeddings$|codebook_size|n_token$", VOCABULARY),
        (r"position|_ctx$|max_.*len|context_length|seq_length$|max_seq|seq_len$", POSITIONS),
        (r"window|local_attention|(?<!tokenizer_)chunk_size|block_length", WINDOW),
        (r"image_size$|img_size$|^size$|crop_size", IMAGE),
        (r"patch_size$", PATCH),
        (r"mel_bins|n_mels|feature_size|feat_per_channel|freq_bins", BANDS),
        (r"period$", 2),
        (r"offset$", 1),
        (r"top_?k|experts_per_tok|selected_experts|moe_k$|topk_group", 2),
        (r"n_groups?$|expert_groups?$", 2),
        (r"shared_experts?$", 1),
        (r"(^|_)(local_|routed_)?experts?$", 4),
        (r"state_size|d_state|ssm_state|state_dim", 8),
        (r"rank$", 16),
        (r"filters$", 4),
        (r"queries|query_tokens|latents|feature_levels|num_query", 4),
    )
)
# What a size that is None may be given, where a library's default is no configuration of its own.
_FILLED: Mapping[str, Callable[[Manner], int]] = {
    "head_dim": lambda manner: manner.head,
    "num_key_value_heads": lambda manner: manner.heads // 2,
    "n_routed_experts": lambda _: 4,
    "num_experts": lambda _: 4,
    "num_experts_per_tok": lambda _: 2,
    "n_shared_experts": lambda _: 1,
    "n_group": lambda _: 1,
    "topk_group": lambda _: 1,
    "kv_lora_rank": lambda _: 16,
    "moe_intermediate_size": lambda manner: manner.width,
}


def small_values(
    config: Any, manner: Manner, tokens: dict[int, int] | None = None
) -> dict[str, Any]:
    """Return arguments of `config`'s class for a small one of its shape. `tokens` are new
    numbers of tokens past the vocabulary, on which parts of one model have to agree.
    """
    settings = {
        k: v for k, v in vars(config).items() if not k.startswith("_") and k not in _NOT_ASKED
    }
    shrink = _Shrinking(settings, manner, {} if tokens is None else tokens)
    values = {name: shrink.value(name, value) for name, value in settings.items()}
    return {name: value for name, value in values.items() if value is not _SAME}


_NOT_ASKED = ("transformers_version", "model_type", "dtype", "torch_dtype", "architectures")


class _Shrinking:
    """A configuration's values and their relations."""

    def __init__(self, raw: Mapping[str, Any], manner: Manner, tokens: dict[int, int]) -> None:
        self.raw, self.manner, self.tokens = raw, manner, tokens
        depths = [self.raw[n] for n in _DEPTHS if _is_size(self.raw.get(n))]
        depths += [
            max((v for k, v in self.raw.items() if _is_size(v) and _DEPTH.search(k)), default=0)
        ]
        self.depth = int(depths[0])
        self.layers = chosen_layers(self.raw, self.depth, self.manner)
        heads = max((v for k, v in self.raw.items() if _is_heads(k) and _is_size(v)), default=0)
        self._heads = heads
        head = next((v for k, v in self.raw.items() if k == "head_dim" and _is_size(v)), 0)
        named = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "width")
        widths = (self.raw[name] for name in named if _is_size(self.raw.get(name)))
        self._width = width = next(widths, 0)
        # A count may be the length of a list, such as one of convolutions.
        lengths = {len(v) for v in self.raw.values() if isinstance(v, (list, tuple)) and len(v) > 1}
        self._lengths = lengths - {self.depth}
        self._head = head or (width // heads if heads else 0) or self.manner.head

    def value(self, name: str, value: Any) -> Any:
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            inner = small_values(value, self.manner, self.tokens)
            return {**inner, "model_type": value.model_type}
        if name == "use_cache" or ("drop" in name and isinstance(value, (int, float)) and value):
            return False if isinstance(value, bool) else 0.0
        if value is None:
            fill = _FILLED.get(name) if self.manner.filled else None
            return fill(self.manner) if fill else _SAME
        if _TOKEN.search(name):
            return self._token(value)
        if isinstance(value, (list, tuple)):
            return self._list(name, list(value))
        return self._size(name, value) if _is_size(value) and not _NO_SIZE.search(name) else _SAME

    def _token(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._token(item) if _is_size(item) else item for item in value]
        if not _is_size(value) or value < VOCABULARY:
            return value
        return self.tokens.setdefault(value, VOCABULARY - 1 - len(self.tokens))

    def _list(self, name: str, value: list[Any]) -> Any:
        if len(value) == self.depth > len(self.layers):
            return [self._entry(name, value[layer]) for layer in self.layers]
        if _points_at_layers(name, value, self.depth):
            indices = [self.layers.index(layer) for layer in value if layer in self.layers]
            return indices or ([len(self.layers) - 1] if value else [])
        if not value or not all(map(_is_size, value)) or _NO_SIZE.search(name):
            return _SAME
        if re.search(r"depths?$|layers|blocks", name):
            return [1 for _ in value]
        if self.manner.wide and _WIDTH.search(name) and not re.search(r"image|img|patch", name):
            least = min(value)
            return [self.manner.head * 2 * max(1, min(item // least, 4)) for item in value]
        return [self._entry(name, item) for item in value]

    def _entry(self, name: str, value: Any) -> Any:
        """Return an entry of a list, unchanged if it is no size."""
        small = self._size(name, value) if _is_size(value) else _SAME
        return value if small is _SAME else small

    def _size(self, name: str, value: int) -> Any:
        if _DEPTH.search(name) and not _NO_DEPTH.search(name):
            small = len(self.layers) if value == self.depth else min(value, LAYERS)
            return _SAME if value in self._lengths else small
        if _SOME_LAYERS.search(name):
            shared = _SHARED.search(name) and self.depth
            return value * len(self.layers) // self.depth if shared else min(value, 1)
        if not self.manner.wide and "vocab" not in name:
            return _SAME
        if _is_heads(name):
            return self._count(name, value)
        manner, small = self.manner, value
        if _HEAD.search(name):
            divided = max(2, value * manner.head // self._head)
            small = divided if manner.exact else manner.head
        elif limits := [limit for pattern, limit in _LIMITS if pattern.search(name)]:
            small = limits[0]
        elif not (_WIDTH.search(name) or _WIDE.search(name) or value == self._width > VOCABULARY):
            return _SAME
        elif manner.exact:
            small = max(2, value * manner.width // ((self._heads or manner.heads) * self._head))
        else:
            small = (2 if _WIDE.search(name) else 1) * manner.width
        return min(value, small)

    def _count(self, name: str, value: int) -> int:
        """Return the number of heads: the manner's, half of it for grouped ones."""
        if self.manner.exact and self._heads:
            return max(1, value * min(self.manner.heads, self._heads) // self._heads)
        if _GROUPED.search(name) and self._heads > value > 1:
            return max(1, self.manner.heads // 2)
        return min(value, self.manner.heads)


def chosen_layers(settings: Mapping[str, Any], depth: int, manner: Manner) -> list[int]:
    """Return layers of each kind, by every list that has an entry a layer or points at layers."""
    lists = {k: v for k, v in settings.items() if isinstance(v, (list, tuple))}
    whole = [v for v in lists.values() if len(v) == depth]
    pointed = [v for k, v in lists.items() if _points_at_layers(k, v, depth)]
    kinds: dict[str, list[int]] = {}
    for layer in range(depth):
        kind = [values[layer] for values in whole], [layer in indices for indices in pointed]
        kinds.setdefault(repr(kind), []).append(layer)
    few = [layers[: manner.of_each_kind] for layers in kinds.values()][:_MOST_KINDS]
    chosen = [layer for layers in few for layer in layers]
    # Lists of the kinds of layers in turn, shorter than the depth.
    patterns = [v for k, v in lists.items() if re.search("type|pattern|block", k)]
    turns = [len(v) for v in patterns if all(isinstance(item, str) for item in v)]
    least = max([LAYERS, *(count for count in turns if 1 < count <= _MOST_KINDS)])
    remaining = [layer for layer in range(depth) if layer not in chosen]
    return sorted([*chosen, *remaining[: max(0, least - len(chosen))]])


def _points_at_layers(name: str, value: Any, depth: int) -> bool:
    return (
        isinstance(value, (list, tuple))
        and bool(value)
        and len(value) < depth
        and bool(_POINTS_AT_LAYERS.search(name))
        and all(isinstance(item, int) and 0 <= item < depth for item in value)
    )


def _is_heads(name: str) -> bool:
    return bool(_HEADS.search(name)) and not _HEAD.search(name)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
