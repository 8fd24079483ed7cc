"""All classes of hazards, in the order in which they are tried."""

from __future__ import annotations

from warpfront.inside.checks.hazards.answers import HazardClass
from warpfront.inside.checks.hazards.attending import ATTENTION
from warpfront.inside.checks.hazards.class_targets import CLASS_TARGETS
from warpfront.inside.checks.hazards.complex_numbers import COMPLEX_NUMBERS
from warpfront.inside.checks.hazards.destinations import DESTINATIONS
from warpfront.inside.checks.hazards.far_out import FAR_OUT
from warpfront.inside.checks.hazards.frequencies import FREQUENCIES
from warpfront.inside.checks.hazards.kept_state import KEPT_STATE
from warpfront.inside.checks.hazards.layouts import LAYOUTS
from warpfront.inside.checks.hazards.lengths import LENGTHS
from warpfront.inside.checks.hazards.linear_systems import LINEAR_SYSTEMS
from warpfront.inside.checks.hazards.lists import LISTS
from warpfront.inside.checks.hazards.mixed_precision import MIXED_PRECISION
from warpfront.inside.checks.hazards.narrow_types import NARROW_TYPES
from warpfront.inside.checks.hazards.non_finite import NON_FINITE
from warpfront.inside.checks.hazards.options import OPTIONS
from warpfront.inside.checks.hazards.ordering import ORDERING
from warpfront.inside.checks.hazards.random_numbers import RANDOM_NUMBERS
from warpfront.inside.checks.hazards.repeatable import REPEATABLE
from warpfront.inside.checks.hazards.shape_sweep import SHAPES
from warpfront.inside.checks.hazards.sized_calls import SIZES
from warpfront.inside.checks.hazards.sparse import SPARSE
from warpfront.inside.checks.hazards.streaming import STREAMING
from warpfront.inside.checks.hazards.vast import VAST
from warpfront.inside.checks.hazards.volumes import VOLUMES
from warpfront.inside.checks.hazards.whole_numbers import WHOLE_NUMBERS
from warpfront.inside.checks.hazards.worlds import KINDS_OF_NUMBERS

HAZARDS: tuple[HazardClass, ...] = (
    *(FAR_OUT, NON_FINITE, LENGTHS, VAST, LAYOUTS, KEPT_STATE, CLASS_TARGETS, ORDERING),
    *(RANDOM_NUMBERS, STREAMING, NARROW_TYPES, MIXED_PRECISION, COMPLEX_NUMBERS, REPEATABLE),
    *(SHAPES, ATTENTION, LINEAR_SYSTEMS, FREQUENCIES, WHOLE_NUMBERS),
    *(VOLUMES, DESTINATIONS, KINDS_OF_NUMBERS, OPTIONS, LISTS, SPARSE, SIZES),
)
