"""The catalogue: one record for each operation, by topic."""

from __future__ import annotations

from collections.abc import Mapping

from warpfront_checks.cases.catalogue.elementwise import ELEMENTWISE
from warpfront_checks.cases.catalogue.images import IMAGES
from warpfront_checks.cases.catalogue.lists import LISTS
from warpfront_checks.cases.catalogue.losses import LOSSES
from warpfront_checks.cases.catalogue.moves import MOVES
from warpfront_checks.cases.catalogue.norms import NORMS
from warpfront_checks.cases.catalogue.optimizers import OPTIMIZERS
from warpfront_checks.cases.catalogue.patterns import PATTERNS
from warpfront_checks.cases.catalogue.products import (
    ATTENTION,
    BIDIRECTIONAL,
    CONVOLUTIONS,
    GROUPED,
    MATRICES,
    RECURRENT,
)
from warpfront_checks.cases.catalogue.reductions import REDUCTIONS
from warpfront_checks.cases.catalogue.sparse import SPARSE
from warpfront_checks.cases.catalogue.systems import SYSTEMS
from warpfront_checks.cases.catalogue.transforms import TRANSFORMS
from warpfront_checks.cases.operation import Operation

TOPICS: Mapping[str, tuple[Operation, ...]] = {
    "elementwise": ELEMENTWISE,
    "matrices": MATRICES,
    "convolutions": CONVOLUTIONS,
    "grouped convolutions": GROUPED,
    "attention": ATTENTION,
    "recurrent": RECURRENT,
    "bidirectional": BIDIRECTIONAL,
    "reductions": REDUCTIONS,
    "moves": MOVES,
    "norms": NORMS,
    "losses": LOSSES,
    "images": IMAGES,
    "patterns": PATTERNS,
    "systems": SYSTEMS,
    "transforms": TRANSFORMS,
    "sparse": SPARSE,
    "lists": LISTS,
    "optimizers": OPTIMIZERS,
}
CATALOGUE: Mapping[str, Operation] = {
    operation.name: operation for topic in TOPICS.values() for operation in topic
}
