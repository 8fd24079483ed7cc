"""The torch stacks that are attacked: what each image holds, and which versions are offered against
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

PORT = 8088
INDEX = f"http://127.0.0.1:{PORT}"
IMAGE_PYTHON = "/opt/venv/bin/python3"
SITE_PACKAGES = "/opt/venv/lib/python3.11/site-packages"
_PLACE = re.compile(r"@([a-z_]+)")


# CUDA's libraries: nothing of another vendor's torch lies where they go.
_CUDAS = (
    "nvidia",
    "cuda",
    "nvidia_cublas",
    "nvidia_cublas_cu12",
    "nvidia_cudnn_cu12",
    "nvidia_cudnn_cu13",
    "nvidia_nccl_cu13",
    "cuda_toolkit",
    "cuda_bindings",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One kind of image. `torch` is its full version, `public` that without the label; `older` and
    `newer` are on the stand-in of PyPI; `other` is the same torch built for another vendor.

    What is named in `free` may come: nothing of the image has it, and its torch has a use for it.
    `vision` and `audio` go with `torch`, `newer_vision` with `newer`. `triton` is the distribution
    that owns `triton/` ("" = none), `cuda` what PyPI's torch of that time needs.
    `libraries` are the versions of these that the image holds; `imported` is what its torch says of
    itself, where that is not `torch` (the label is in PyPI's wheel and not in its name).
    """

    kind: str
    reference: str
    torch: str
    older: str
    newer: str
    other: str
    newer_other: str
    vision: str
    newer_vision: str
    audio: str
    triton: str
    triton_version: str
    cuda: tuple[str, ...]
    real: bool
    free: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    imported: str = ""

    @property
    def public(self) -> str:
        return self.torch.partition("+")[0]

    @property
    def pin(self) -> str:
        """torch as the guard's constraint says it."""
        return f"torch{'==' if '+' in self.torch else '==='}{self.torch}"

    def places(self) -> Mapping[str, str]:
        """What `@name` stands for in the commands and texts of the cases."""
        return {
            "torch": self.torch,
            "public": self.public,
            "minor": ".".join(self.public.split(".")[:2]),
            "older": self.older,
            "newer": self.newer,
            "other": self.other,
            "pin": self.pin,
            "vision": self.vision,
            "newer_vision": self.newer_vision,
            "audio": self.audio,
            "triton": self.triton,
            "index": f"{INDEX}/pypi/",
            "vendor_index": f"{INDEX}/vendor/",
            "other_index": f"{INDEX}/other/",
            "files": f"{INDEX}/files",
            "wheels": "/adversary/index/files",
            "projects": "/adversary/projects",
            "site": SITE_PACKAGES,
            "probe": "/adversary/probe.py",
        }

    def fill(self, text: str) -> str:
        """`text` with every `@name` replaced. Raises `KeyError` for one that nobody knows."""
        places = self.places()
        return _PLACE.sub(lambda match: places[match[1]], text)


CPU = Stack(
    kind="cpu",
    reference="localhost/warpfront/torch:2.13.0-cpu-py3.11",
    torch="2.13.0+cpu",
    older="2.12.1",
    newer="2.15.0",
    other="2.13.0+cu130",
    newer_other="2.15.0+cpu",
    vision="0.28.0+cpu",
    newer_vision="0.29.2",
    audio="2.11.0+cpu",
    triton="",
    triton_version="",
    cuda=("nvidia-cublas", "nvidia-cudnn-cu13"),
    real=True,
    free=("triton", *_CUDAS),
)
CUDA = Stack(
    kind="cuda",
    reference="localhost/warpfront/torch:2.14.1-cuda13.0-py3.11",
    torch="2.14.1",
    older="2.13.0",
    newer="2.15.0",
    other="2.14.1+cpu",
    newer_other="2.15.0+cpu",
    vision="0.29.1",
    newer_vision="0.29.2",
    audio="2.11.0",
    triton="triton",
    triton_version="3.8.0",
    cuda=("nvidia-cublas", "nvidia-cudnn-cu13"),
    real=True,
    libraries={"nvidia-cublas": "13.1.1.3", "nvidia-cudnn-cu13": "9.24.0.43"},
    imported="2.14.1+cu130",
)
ROCM = Stack(
    kind="rocm",
    reference="localhost/warpfront/adversary-rocm:2.8.0-rocm6.4-py3.11",
    torch="2.8.0+rocm6.4",
    older="2.7.1",
    newer="2.15.0",
    other="2.8.0+cpu",
    newer_other="2.9.0+cpu",
    vision="0.23.0+rocm6.4",
    newer_vision="0.29.2",
    audio="2.8.0+rocm6.4",
    triton="pytorch-triton-rocm",
    triton_version="3.4.0",
    cuda=("nvidia-cublas-cu12", "nvidia-cudnn-cu12"),
    real=False,
    free=_CUDAS,
)
STACKS = {stack.kind: stack for stack in (CPU, CUDA, ROCM)}
