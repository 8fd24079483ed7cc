"""What an ordinary `import torch` comes to, as one line of JSON. Runs inside images, as the user
would run a script with `python3 -c`: the current folder is first on the path.

With `--find` it asks for the module without loading it: import hooks see that too.
"""

import importlib.util
import json
import sys

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
    return {"ok": True, "file": torch.__file__, "version": str(version)}


try:
    answer = found() if "--find" in sys.argv else imported()
except Exception as error:  # noqa: BLE001 - whatever a broken stack raises is the answer
    answer = {"ok": False, "error": f"{type(error).__name__}: {error}"}
print("@probe " + json.dumps(answer))
