"""Operations in a row that compilers fuse: inside a fused kernel nothing can be compared."""

from __future__ import annotations

from warpfront_checks.cases.catalogue.norms import NORMS
from warpfront_checks.cases.catalogue.products import CONVOLUTIONS
from warpfront_checks.cases.catalogue.record import contract, exact, rounded
from warpfront_checks.cases.operation import Operation

PRODUCT = "m k, n k, n"
_PARTS = {part.name: part for part in (*CONVOLUTIONS, *NORMS)}
CONV, BATCH_NORM = _PARTS["conv2d"], _PARTS["batch_norm"]
PATTERNS: tuple[Operation, ...] = (
    exact("F.relu(F.linear(a, b, c))", PRODUCT, name="matmul + bias + relu"),
    rounded("F.gelu(F.linear(a, b, c))", PRODUCT, name="matmul + bias + gelu"),
    # At a kink rounding decides which gradients pass, and batch norm spreads each over its channel.
    rounded(
        "F.silu(F.batch_norm(F.conv2d(a, b, None, padding=1), None, None, c, d, training=True))",
        "b c y x, o c 3 3, o, o",
        name="conv + batch norm + silu",
        **contract(CONV, BATCH_NORM),
        half_roundings=32.0,
        values=("normal",),
        least_size=2,
    ),
    exact("F.relu(a + b)", "m n, m n | m n, n | b c y x, b c y x", name="add + relu"),
    exact("F.hardtanh(F.linear(a, b, c), -2.5, 2.5)", PRODUCT, name="matmul + bias + hardtanh"),
    # Of equal numbers in a window any may get the gradient.
    exact(
        "F.max_pool2d(F.relu(F.conv2d(a, b, c, padding=1)), 2)",
        "b c y x, o c 3 3, o",
        name="conv + relu + max pool",
        **contract(CONV),
        half_roundings=1.0,
        backward=False,
        least_size=2,
    ),
)
# Compiling is slow: of these, by torch.compile too.
COMPILED = PATTERNS[:4]
