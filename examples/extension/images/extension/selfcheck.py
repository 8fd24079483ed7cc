"""Compare `row_sum` with torch's own sum in float64."""

import torch
from row_sum import row_sum

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
for rows, columns in ((1, 1), (3, 31), (5, 1031), (70, 4099)):
    matrix = torch.randn(rows, columns)
    right = matrix.double().sum(1)
    error = (row_sum(matrix.to(device)).cpu().double() - right).abs().max().item()
    # Each sum adds `columns` numbers near 1 in float32.
    bound = columns * 2**-23
    if error > bound:
        raise SystemExit(f"wrong on {device}: {rows} x {columns}: off by {error}, bound {bound}")
print(f"right on {device}")
