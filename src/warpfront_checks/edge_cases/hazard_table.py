"""All classes of hazards, in the order in which they are tried."""

from __future__ import annotations

from warpfront_checks.cases.special.attention_layers import ATTENTION
from warpfront_checks.cases.special.streams import STREAMING
from warpfront_checks.edge_cases.answers import HazardClass
from warpfront_checks.edge_cases.class_targets import CLASS_TARGETS
from warpfront_checks.edge_cases.complex_numbers import COMPLEX_NUMBERS
from warpfront_checks.edge_cases.extreme_values import FAR_OUT
from warpfront_checks.edge_cases.frequencies import FREQUENCIES
from warpfront_checks.edge_cases.int64_indexing import VAST
from warpfront_checks.edge_cases.linear_systems import LINEAR_SYSTEMS
from warpfront_checks.edge_cases.lists import LISTS
from warpfront_checks.edge_cases.narrow_types import NARROW_TYPES
from warpfront_checks.edge_cases.non_finite import NON_FINITE
from warpfront_checks.edge_cases.random_numbers import RANDOM_NUMBERS
from warpfront_checks.edge_cases.stateful_ops import KEPT_STATE
from warpfront_checks.edge_cases.value_distributions import KINDS_OF_NUMBERS

HAZARDS: tuple[HazardClass, ...] = (
    FAR_OUT,
    NON_FINITE,
    VAST,
    KEPT_STATE,
    CLASS_TARGETS,
    RANDOM_NUMBERS,
    STREAMING,
    NARROW_TYPES,
    COMPLEX_NUMBERS,
    ATTENTION,
    LINEAR_SYSTEMS,
    FREQUENCIES,
    KINDS_OF_NUMBERS,
    LISTS,
)
