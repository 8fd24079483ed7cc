"""A stand-in for AMD's emulator rocJITsu, which cannot be had here: command line, environment,
preloading and exit codes of its launchers, and the line that it logs for a dispatch. It computes no
kernel.

Looked up in ROCm/rocm-systems, emulation/rocjitsu: tools/rocjitsu/main.cpp @0af565a (options,
messages, exit code 1, the library beside `bin`, ROCJITSU_INVOCATION_DIR, execvp) and
launch_preload.cpp @1d1c348 (LD_PRELOAD in front), cli/docs/cli.md @3fcb908 (`run --in-process`,
what is refused beside --config), vm/plugins/race_detector/plugin.cpp @bff4112 (the line),
configs/gfx942_cdna3*.json @12ef0fe.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
_LAUNCHER = """#!/usr/bin/env python3
import json, os, sys
from pathlib import Path

def stop(text):
    sys.stderr.write(f"rocjitsu: {text}\\n")
    sys.exit(1)

words = sys.argv[1:]
if Path(sys.argv[0]).name == "mirage":
    if words[:2] != ["run", "--in-process"]:
        stop(f"unexpected {words[:2]}")
    words = words[2:]
config, app = None, []
while words:
    word = words.pop(0)
    if word == "--":
        app = words
        break
    if word == "--config" and words:
        config = words.pop(0)
    else:
        stop(f"unknown option: {word}")
if config is None:
    stop("--config is required")
if not os.path.exists(config):
    stop(f"config file not found: {config}")
try:
    json.loads(Path(config).read_text())["topology"]
except (ValueError, KeyError) as error:
    stop(f"failed to parse config: {error}")
if not app:
    stop("no application specified after --")
library = Path(sys.argv[0]).resolve().parent.parent / "lib" / "librocjitsu.so"
if not library.exists():
    stop("could not find librocjitsu.so")
folder = Path(os.environ["ROCJITSU_RUNTIME_DIR"]) / str(os.getpid())
folder.mkdir(parents=True)
(folder / "config_path").write_text(f"{config}\\n")
first = os.environ.get("LD_PRELOAD", "")
os.environ["LD_PRELOAD"] = f"{library}:{first}" if first else str(library)
os.environ["ROCJITSU_INVOCATION_DIR"] = str(folder)
os.execvp(app[0], app)
"""
_TORCH = """
import ctypes
from pathlib import Path
hip = ctypes.CDLL(str(Path(__file__).parent / "lib/libamdhip64.so.7"))
rtc = ctypes.CDLL(str(Path(__file__).parent / "lib/libhiprtc.so.7"))
"""


def device(version: int = 90402, **changes: object) -> dict[str, object]:
    """The parts of a configuration that are read here."""
    return {
        "exec_mode": "functional",
        "vm": {
            "arch": "cdna3",
            "gpu": {"device": {"gpu_id": 1, "gfx_target_version": version, **changes}},
        },
        "topology": {"root": {"name": "soc", "type": "soc"}},
    }


def stand_in_emulator(root: Path, launcher: str = "rocjitsu") -> Path:
    """An emulator's folder with the configurations that MI300X had in October 2026."""
    (root / "bin").mkdir(parents=True)
    program = root / "bin" / launcher
    program.write_text(_LAUNCHER)
    program.chmod(0o755)
    configs = root / "share/rocjitsu/configs"
    configs.mkdir(parents=True)
    two = device(drm_render_minor=128)
    two["vm"]["gpu"]["num_gpus"] = 2  # type: ignore[index]
    for name, config in (
        ("gfx942_cdna3.json", device()),
        ("gfx942_cdna3_kmd.json", device(drm_render_minor=128)),
        ("gfx942_2gpu.json", two),
        ("gfx942_other.json", device(90500, drm_render_minor=128)),
        ("guest_gfx942_on_gfx1201.json", {"dbt_guest": {"enabled": True}}),
    ):
        (configs / name).write_text(json.dumps(config))
    (configs / "gfx942.json").write_text("no JSON")
    (root / "lib").mkdir()
    _built(root / "lib/librocjitsu.so", "INTERPOSER")
    return root


def stand_in_rocm_torch(folder: Path) -> Path:
    """A torch that loads the stand-ins of HIP, and is nothing else."""
    library = folder / "torch" / "lib"
    library.mkdir(parents=True)
    (library.parent / "__init__.py").write_text(_TORCH)
    _built(library / "libamdhip64.so.7", "HIP")
    _built(library / "libhiprtc.so.7", "HIPRTC")
    return folder


def _built(library: Path, define: str) -> None:
    shutil.copy(_compiled(define), library)


@functools.cache
def _compiled(define: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("this machine has no C compiler for the stand-in emulator")
    folder = Path(tempfile.mkdtemp(prefix="warpfront-rocjitsu-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = folder / f"{define}.so"
    argv = [compiler, "-shared", "-fPIC", f"-D{define}", "-o", str(library), str(SOURCE)]
    subprocess.run(argv, check=True)
    return library
