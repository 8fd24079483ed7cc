"""What the check `device` says on a machine with a GPU, as it is and with each stand-in for an
emulator: PYTHONPATH=src python3 tools/device_signs.py

Needs torch. Prints a line a case and exits 1 if one comes out otherwise than written here. The
stand-in interposer is compiled by cc; without a compiler its cases are said to be left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAND_IN = ROOT / "tests/unit/warpfront_checks/stand_in_interposer.c"
DETECT = (sys.executable, "-m", "warpfront_checks", "detect", "--json")
PATH = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))


def detected(**environment: str) -> dict[str, object]:
    """Return what `detect` says of this machine with a few variables more."""
    given = {**os.environ, "PYTHONPATH": PATH, **environment}
    ended = subprocess.run(DETECT, env=given, check=True, capture_output=True, text=True)
    found: dict[str, object] = json.loads(ended.stdout)
    return found


def built(folder: Path, name: str, define: str) -> Path:
    library = folder / name
    argv = ("cc", "-shared", "-fPIC", f"-D{define}", "-o", str(library), str(STAND_IN), "-ldl")
    subprocess.run(argv, check=True)
    return library


def main() -> int:
    wrong = 0

    def case(name: str, expected: str, **environment: str) -> None:
        nonlocal wrong
        found = detected(**environment)
        answer = found["answer"]
        assert isinstance(answer, dict)
        said = str(answer["device_check"])
        right = said.startswith(expected)
        wrong += not right
        print(f"{'as expected' if right else 'OTHERWISE'}: {name}: {said}", flush=True)
        if name == "as it is":
            hardware = found["hardware"]
            assert isinstance(hardware, dict)
            print(json.dumps({"kernel": hardware["kernel"]}, indent=1), flush=True)

    case("as it is", "passed")
    case("a launcher's variable", "emulated", MIRAGE_SESSION="1")
    if shutil.which("cc") is None:
        print("left out, for there is no cc: the stand-in interposers")
        return int(wrong > 0)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        driver = built(folder, "libanswers.so", "ANSWERS_THE_DRIVER")
        case("a library that answers for the driver", "emulated", LD_PRELOAD=str(driver))
        named = built(folder, "librocjitsu_standin.so", "NOTHING")
        case("a library with an emulator's name", "emulated", LD_PRELOAD=str(named))
        files = built(folder, "libfiles.so", "ANSWERS_FILES")
        case("a library that answers open", "undetermined", LD_PRELOAD=str(files))
        nothing = built(folder, "libnothing.so", "NOTHING")
        case("a preloaded library of no concern", "passed", LD_PRELOAD=str(nothing))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
