"""What is inside the stand-ins for torch, torchvision and triton: enough that everything the
`load` session asks is true of them, and nothing that could pass for a device or a computation.

Their compiled parts are real ELF extension modules for x86_64, empty and assembled here, because
`load` reads the files' headers and imports them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

Files = Mapping[str, str | bytes]
_X86_64 = 62


def torch_files(
    version: str,
    *,
    archs: Sequence[str],
    hip: str | None = None,
    cuda: str | None = None,
    python: str = "3.11",
) -> Files:
    """An importable torch that says of itself what a ROCm or CUDA build says where there is no
    GPU.
    """
    facts = {
        "__version__": version,
        "debug": False,
        "cuda": cuda,
        "hip": hip,
        "git_version": "0" * 40,
        "xpu": None,
    }
    return {
        "torch/__init__.py": _TORCH.replace("ARCHS", repr(" ".join(archs))),
        "torch/version.py": "".join(f"{name} = {value!r}\n" for name, value in facts.items()),
        "torch/cuda/__init__.py": _CUDA,
        "torch/backends.py": _BACKENDS,
        "torch/nn/__init__.py": "",
        "torch/nn/functional.py": _FUNCTIONAL,
        f"torch/_C.{_suffix(python)}": extension_module("_C"),
    }


def torchvision_files(version: str) -> Files:
    """`torchvision.ops.nms` in plain Python: it computes what it says."""
    return {
        "torchvision/__init__.py": f'from torchvision import ops\n__version__ = "{version}"\n',
        "torchvision/ops.py": _NMS,
    }


def triton_files(version: str, *, python: str = "3.11") -> Files:
    """As the real one's, `triton/_C` has the library alone, and `import triton` loads it."""
    loads = "from triton._C import libtriton"
    return {
        "triton/__init__.py": f'__version__ = "{version}"\n{loads}\n',
        "triton/language.py": "",
        f"triton/_C/libtriton.{_suffix(python)}": extension_module("libtriton"),
    }


def extension_module(name: str) -> bytes:
    """An ELF shared object for x86_64 with which CPython imports an empty module called `name`.

    `PyInit_<name>` gives back a static PyModuleDef, which CPython takes for multi-phase
    initialisation (PEP 489); the loader fills in the two addresses that it holds (ELF gABI,
    "Dynamic Linking"; x86-64 psABI, relocations R_X86_64_64 = 1 and R_X86_64_RELATIVE = 8).
    """
    parts: dict[str, bytes] = {
        "headers": bytes(64 + 3 * 56),
        "symbols": bytes(3 * 24),
        "strings": f"\0PyInit_{name}\0PyModuleDef_Type\0".encode(),
        "hash": struct.pack("<2I1I3I", 1, 3, 1, 0, 2, 0),
        "relocations": bytes(2 * 24),
        "dynamic": bytes(9 * 16),
        "definition": struct.pack("<Q", 1) + bytes(96),
        "name": name.encode() + b"\0",
        "code": bytes(8),
    }
    at = _addresses(parts)
    size = at["code"] + 8
    init, kind = 1, 1 + len(f"PyInit_{name}") + 1
    parts["symbols"] = (
        bytes(24)
        + struct.pack("<IBBHQQ", init, 0x12, 0, 1, at["code"], 8)  # global function, defined here
        + struct.pack(
            "<IBBHQQ", kind, 0x11, 0, 0, 0, 0
        )  # global object, defined by the interpreter
    )
    definition = at["definition"]
    parts["relocations"] = struct.pack("<QQq", definition + 8, (2 << 32) | 1, 0)
    parts["relocations"] += struct.pack("<QQq", definition + 40, 8, at["name"])
    tags = {
        4: at["hash"],
        5: at["strings"],
        6: at["symbols"],
        7: at["relocations"],
        8: 48,
        9: 24,
        10: len(parts["strings"]),
        11: 24,
        0: 0,
    }
    parts["dynamic"] = b"".join(struct.pack("<QQ", tag, value) for tag, value in tags.items())
    # lea rax, [rip + definition]; ret
    parts["code"] = b"\x48\x8d\x05" + struct.pack("<i", definition - (at["code"] + 7)) + b"\xc3"
    parts["headers"] = _headers(size, at["dynamic"])
    image = bytearray(size)
    for part, content in parts.items():
        image[at[part] : at[part] + len(content)] = content
    return bytes(image)


def _headers(size: int, dynamic: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    file = ident + struct.pack("<HHIQQQIHHHHHH", 3, _X86_64, 1, 0, 64, 0, 0, 64, 56, 3, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, size, size, 0x1000)
    linking = struct.pack("<IIQQQQQQ", 2, 6, dynamic, dynamic, dynamic, 144, 144, 8)
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # not executable
    return file + load + linking + stack


def _addresses(parts: Mapping[str, bytes]) -> dict[str, int]:
    """Each part's place in the file, which is its address too; all on multiples of 16."""
    places, place = {}, 0
    for part, content in parts.items():
        places[part] = place
        place += -(-len(content) // 16) * 16
    return places


def _suffix(python: str) -> str:
    return f"cpython-{python.replace('.', '')}-x86_64-linux-gnu.so"


_TORCH = '''\
"""A stand-in for torch, for tests only: it knows its build, sees no device and computes nothing."""

from torch import _C, backends, cuda, version

__version__ = version.__version__
# A real _C has the build's arch flags, which are there without a GPU too.
_C._cuda_getArchFlags = lambda: ARCHS


class Tensor:
    """Numbers, kept as they came."""

    def __init__(self, values):
        self._values = values

    def tolist(self):
        return self._values


def tensor(values):
    return Tensor(values)


class dtype:
    def __init__(self, bits):
        self.bits = bits


class finfo:
    def __init__(self, kind):
        self.eps = 2.0 ** {16: -10, 17: -7, 32: -23, 64: -52}[kind.bits]
        self.smallest_normal = 2.0 ** {16: -14, 17: -126, 32: -126, 64: -1022}[kind.bits]


float16, bfloat16, float32, float64 = dtype(16), dtype(17), dtype(32), dtype(64)


def __getattr__(name):
    """What is named when a module is imported can be named; using it is an error."""
    if name.startswith("__"):
        raise AttributeError(name)

    def computes_nothing(*_arguments, **_options):
        raise NotImplementedError(f"torch.{name}: this torch is a stand-in and computes nothing")

    return computes_nothing
'''
_CUDA = '''\
def is_available():
    return False


def device_count():
    return 0


def init():
    raise RuntimeError("No GPUs are available")


def get_arch_list():
    """Empty where there is no device, as in the real one."""
    return []
'''
_BACKENDS = """\
from types import SimpleNamespace

cuda = SimpleNamespace(matmul=SimpleNamespace())
cudnn = SimpleNamespace()
mkldnn = SimpleNamespace()
"""
_FUNCTIONAL = """\
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def computes_nothing(*_arguments, **_options):
        raise NotImplementedError(f"functional.{name}: a stand-in computes nothing")

    return computes_nothing
"""
_NMS = '''\
from torch import tensor


def nms(boxes, scores, iou_threshold):
    """Boxes (x1, y1, x2, y2) that overlap no better one by more than the threshold."""
    corners, ranks = boxes.tolist(), scores.tolist()
    kept = []
    for place in sorted(range(len(ranks)), key=lambda i: -ranks[i]):
        if all(_overlap(corners[place], corners[other]) <= iou_threshold for other in kept):
            kept.append(place)
    return tensor(kept)


def _overlap(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return width * height / (sum(areas) - width * height)
'''
