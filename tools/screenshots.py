#!/usr/bin/env python3
"""Take the pictures of the documentation: the report page, the site, a terminal.

usage: tools/screenshots.py [--to FOLDER]     (default docs/images; the site goes to build)

Needs chromium and chromedriver, and the `dev` group. The terminal shows commands that are run here,
without an engine. The report page has this repository's cells with states that are made up, and its
title says so. A picture over 50 kB is an error.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT / "tests", ROOT / "src"):
    sys.path.insert(0, str(folder))

from builders import a_report_row  # noqa: E402 - after the paths

from warpfront.matrix.compat import packaged  # noqa: E402
from warpfront.matrix.reading import read_matrix  # noqa: E402
from warpfront.report.page import page_html  # noqa: E402

LIMIT_BYTES = 50_000
COLUMNS = 104
SIZES = {"report": (1100, 760), "site": (1280, 760), "terminal": (920, 560)}
SHOWN = ("warpfront plan", "warpfront port scan app --target gfx942")
TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; padding: 16px; background: #11151c; color: #dfe6f0; }
pre { margin: 0; font: 14px/1.35 monospace; }
</style><pre>{code}</pre>"""
APP = """\
#include <cuda_runtime.h>
__global__ void sum(float *out, const float *in) {
    float value = in[threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffff, value, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(out, value);
}
"""
STATES: tuple[tuple[str, dict[str, str]], ...] = (
    ("passed", {}),
    ("passed", {}),
    ("failed", {"reason": "numerics/mm float16: 3 of 4096 elements are over their bound"}),
    ("unavailable", {"reason": "no sm_100 on this machine"}),
    ("passed", {}),
    ("-", {"build": "-", "lock": "missing"}),
    ("passed", {"check_options": "quick"}),
    ("-", {"build": "blocked", "reason": "its base, gaudi-1-24, is unpinned"}),
)


def report_page() -> str:
    """Return the page of this repository's cells, with a state in turn."""
    text = (ROOT / "matrix.yaml").read_text(encoding="utf-8")
    cells = read_matrix(text, path="matrix.yaml", compat=packaged()).cells
    pairs = []
    for number, (cell, target) in enumerate((c, t) for c in cells for t in c.targets):
        verify, changes = STATES[number % len(STATES)]
        built = {"cell_id": cell.id, "target": target, "verify": verify, **changes}
        built["repeat"] = f"warpfront verify --only {cell.id} --target {target}"
        pairs.append((cell, a_report_row(**built)))
    title = "warpfront: every cell (an example: the states are made up)"
    return page_html(pairs, title=title, made=f"{len(pairs)} results")


def terminal_page(folder: Path) -> str:
    """Return a page with what commands print to a terminal in an empty folder."""
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "sum.cu").write_text(APP)
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    run_in_terminal("warpfront init", folder)
    for words in SHOWN:
        console.print(Text(f"$ {words}", style="bold"))
        console.print(Text.from_ansi(run_in_terminal(words, folder)))
    code = console.export_html(inline_styles=True, code_format="{code}", theme=MONOKAI)
    return TERMINAL.replace("{code}", code)


def run_in_terminal(words: str, folder: Path) -> str:
    """Return what a command prints to a terminal of `COLUMNS` columns."""
    ours, theirs = pty.openpty()
    program, *rest = words.split()
    environment = {
        **os.environ,
        "COLUMNS": str(COLUMNS),
        "DOCKER_HOST": f"unix://{folder}/none",
        "PIP_NO_INDEX": "1",
        "TERM": "xterm-256color",
    }
    command = (str(Path(sys.executable).with_name(program)), *rest)
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        timeout=120,
        check=False,  # a scan with findings ends with 15
    )
    os.close(theirs)
    text = b""
    while part := _read(ours):
        text += part
    os.close(ours)
    return text.decode("utf-8").replace("\r\n", "\n").rstrip("\n") + "\n"


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images")
    target = parser.parse_args().to
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        print("no browser: apt-get install chromium chromium-driver", file=sys.stderr)
        return 1
    for made in (target, ROOT / "build"):
        made.mkdir(parents=True, exist_ok=True)
    from integration.test_page import a_browser  # noqa: PLC0415 - it brings selenium

    too_big = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        mkdocs = (str(Path(sys.executable).with_name("mkdocs")), "build", "--site-dir")
        subprocess.run((*mkdocs, str(folder / "site")), cwd=ROOT, check=True, capture_output=True)
        (folder / "report.html").write_text(report_page(), encoding="utf-8")
        (folder / "terminal.html").write_text(terminal_page(folder / "home"), encoding="utf-8")
        pages = {
            "report": folder / "report.html",
            "site": folder / "site" / "start" / "index.html",
            "terminal": folder / "terminal.html",
        }
        with a_browser(folder) as browser:
            for picture, page in pages.items():
                browser.set_window_size(*SIZES[picture])
                browser.get(page.as_uri())
                browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
                file = (ROOT / "build" if picture == "site" else target) / f"{picture}.webp"
                how = {"format": "webp", "quality": 70}
                taken = browser.execute_cdp_cmd("Page.captureScreenshot", how)
                file.write_bytes(base64.b64decode(taken["data"]))
                size = file.stat().st_size
                print(f"{file}: {size} bytes")
                too_big += [picture] if size > LIMIT_BYTES else []
    if too_big:
        print(f"over {LIMIT_BYTES} bytes: {', '.join(too_big)}", file=sys.stderr)
    return 1 if too_big else 0


if __name__ == "__main__":
    raise SystemExit(main())
