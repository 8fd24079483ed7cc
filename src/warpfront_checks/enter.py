"""Started by the image's Python: runs nox from the toolbox in this one process, and nowhere else.

The toolbox is appended to this process's path only. Sessions start child processes, which do not
inherit `sys.path`, so they see exactly the image's own packages.
Usage: enter.py SESSION... [-- OPTIONS]; `CheckOptions` lists the options.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path("/results")


def main(arguments: list[str], *, root: Path = ROOT, results: Path = RESULTS) -> None:
    """Run our sessions with nox from `root/toolbox`; nox exits with its own code.

    `root` has src/, toolbox/ and claims.json (read-only); `results` is writable. nox reads the file
    of our sessions itself: the imports of a project's noxfile are not in its images.
    """
    divided = arguments.index("--") if "--" in arguments else len(arguments)
    sessions, options = arguments[:divided], arguments[divided + 1 :]
    if not sessions:
        sys.exit("usage: enter.py SESSION... [-- OPTIONS]")
    # This script's own folder is first on the path: its modules must not shadow anybody's.
    sys.path[:] = [
        entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent
    ]
    sys.path += [str(root / "src"), str(root / "toolbox")]
    os.environ.setdefault("HOME", "/tmp")  # noqa: S108 - a container's tmpfs; nox asks for a home
    sys.argv = [
        "nox",
        "--noxfile",
        str(root / "src" / "warpfront" / "cli" / "sessions.py"),
        "--envdir",
        "/tmp/nox",  # noqa: S108 - a folder of the container's own
        "--no-venv",
        "--report",
        str(results / "nox.json"),
        "--sessions",
        *sessions,
        "--",
        "--claims",
        str(root / "claims.json"),
        "--results",
        str(results),
        *(("--together", ",".join(sessions)) if len(sessions) > 1 else ()),
        *options,
    ]
    from nox.__main__ import main as run_nox  # noqa: PLC0415 - importable only now

    run_nox()


if __name__ == "__main__":
    main(sys.argv[1:])
