"""What an ordinary `import torch` comes to, as one line of JSON. Runs inside images, as the user
would run a script with `python3 -c`: the current folder is first on the path.

With `--find` it asks for the module without loading it: import hooks see that too.
"""

import filecmp
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[0] = ""


def found() -> dict[str, object]:
    spec = importlib.util.find_spec("torch")
    if spec is None:
        raise ModuleNotFoundError("No module named 'torch'")
    return {"ok": True, "file": spec.origin, "version": None}


def imported() -> dict[str, object]:
    import torch

    version = torch.__version__
    for name in ("torchvision", "triton"):
        if importlib.util.find_spec(name) is not None:
            __import__(name)
    site = Path(torch.__file__).parents[1]
    strange = sorted(strangers(mapped(), list(libraries(site))))
    return {"ok": True, "file": torch.__file__, "version": str(version), "strangers": strange}


def libraries(site: Path) -> Iterator[Path]:
    """Those that torch's own import may load, and torchvision's, which brings copies of some."""
    yield from site.glob("torch/lib/*.so*")
    yield from site.glob("torch*.libs/*.so*")
    yield from site.glob("nvidia/**/lib/*.so*")


def mapped() -> set[str]:
    """Every file of code in this process."""
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    fields = (line.split(None, 5) for line in lines)
    return {one[5] for one in fields if len(one) > 5 and "x" in one[1] and one[5][0] == "/"}


def strangers(loaded: set[str], own: list[Path]) -> Iterator[str]:
    """What is mapped by the name of a library of torch's, or with its bytes, from elsewhere."""
    names = {one.name for one in own}
    sizes = {one.stat().st_size: one for one in own}
    for path in map(Path, loaded - {os.path.realpath(one) for one in own}):
        twin = sizes.get(path.stat().st_size) if path.exists() else None
        same = twin is not None and filecmp.cmp(path, twin, shallow=False)
        if same or path.name in names:
            yield str(path)


try:
    answer = found() if "--find" in sys.argv else imported()
except Exception as error:  # noqa: BLE001 - whatever a broken stack raises is the answer
    answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
print("@probe " + json.dumps(answer))
