"""The bridge: torch's third device type is called hpu from here on."""

import os

import torch

import habana_frameworks

habana_frameworks.is_loaded = True
# Built from device.cpp by tests/stand_in_hpu.
torch.ops.load_library(os.environ["STAND_IN_HPU_LIBRARY"])
torch.utils.rename_privateuse1_backend("hpu")

from habana_frameworks.torch import hpu

torch._register_device_module("hpu", hpu)
torch.utils.generate_methods_for_privateuse1_backend()


def _hpu_backend(graph, inputs):
    return graph.forward


torch._dynamo.register_backend(compiler_fn=_hpu_backend, name="hpu_backend")

if os.environ.get("PT_HPU_GPU_MIGRATION") == "1":
    import habana_frameworks.torch.gpu_migration
