"""What the vendor's toolkit does first: torch.cuda says that it is there."""

import torch

from habana_frameworks.torch import hpu

torch.cuda.is_available = hpu.is_available
torch.cuda.device_count = hpu.device_count
