"""The door for checks: `nox -s verify`, and what a developer runs before a commit.

`nox -s verify -- --target cpu` verifies images from the inside; `nox -s verify -- --here` the
current Python.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import nox

try:
    from warpfront.cli import sessions
except ModuleNotFoundError:
    # Inside images and on GPU machines warpfront is a folder, not an installed package.
    sys.path.append(str(Path(__file__).resolve().parent / "src"))
    from warpfront.cli import sessions

__all__ = ["sessions"]

nox.options.default_venv_backend = "none"
nox.options.sessions = ["verify"]


@nox.session(default=False)
def tests(session: nox.Session) -> None:
    """Unit and contract tests: no Docker, no network. Further arguments go to pytest."""
    chosen = session.posargs or ["-m", "not docker and not network and not gpu"]
    session.run(sys.executable, "-m", "pytest", *chosen, external=True)


@nox.session(default=False)
def lint(session: nox.Session) -> None:
    """Ruff's rules and its format."""
    session.run(sys.executable, "-m", "ruff", "check", external=True)
    session.run(sys.executable, "-m", "ruff", "format", "--check", external=True)


@nox.session(default=False)
def types(session: nox.Session) -> None:
    """mypy, strict."""
    session.run(sys.executable, "-m", "mypy", external=True)


@nox.session(default=False)
def package(session: nox.Session) -> None:
    """The sdist and the wheel in dist/: built twice to the same bytes, and checked."""
    folders = [Path("dist"), Path(session.create_tmp()) / "again"]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        words = ("-m", "build", "--outdir", str(folder))
        session.run(sys.executable, *words, env={"SOURCE_DATE_EPOCH": "1577836800"}, external=True)
    files, again = (sorted(folder.iterdir()) for folder in folders)
    pairs = zip(files, again, strict=True)
    differing = [one.name for one, other in pairs if one.read_bytes() != other.read_bytes()]
    if differing:
        session.error(f"built twice, and not the same: {', '.join(differing)}")
    names = [str(path) for path in files]
    session.run(sys.executable, "-m", "twine", "check", "--strict", *names, external=True)
    wheels = [name for name in names if name.endswith(".whl")]
    session.run(sys.executable, "-m", "check_wheel_contents", *wheels, external=True)


@nox.session(default=False)
def install(session: nox.Session) -> None:
    """The wheel of dist/ in an environment of its own, as a user has it.

    On the Python that runs this, or on the one that is named after `--`.
    """
    (wheel,) = sorted(Path("dist").resolve().glob("*.whl"))
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder / "venv", ignore_errors=True)
    shutil.rmtree(folder / "project", ignore_errors=True)
    (folder / "project").mkdir()
    python = session.posargs[0] if session.posargs else sys.executable
    session.run(python, "-m", "venv", str(folder / "venv"), external=True)
    programs = folder / "venv" / "bin"
    session.run(str(programs / "pip"), "install", "--quiet", str(wheel), external=True)
    with session.chdir(folder / "project"):
        for words in (("init",), ("--help",), ("ci", "fingerprints")):
            session.run(str(programs / "warpfront"), *words, env={"PYTHONPATH": ""}, external=True)


@nox.session(default=False)
def findings(session: nox.Session) -> None:
    """SARIF in findings/: hadolint's of every Dockerfile as it is reviewed, the scanner's of src.

    What is found is shown by the forge, and fails nothing here.
    """
    folder = Path("findings")
    folder.mkdir(exist_ok=True)
    files = sorted(str(path) for path in Path("tests/golden/dockerfiles").glob("*.Dockerfile"))
    words = ("hadolint", "--no-fail", "--format", "sarif", *files)
    said = session.run(*words, silent=True, external=True)
    (folder / "hadolint.sarif").write_text(str(said), encoding="utf-8")
    # Places are of the root; the files of the rules hold what they are about.
    aside = "tests/**,scripts/**,benchmarks/**,tools/**,docs/**,build/**,dist/**,.nox/**,.venv/**"
    aside += ",src/warpfront_port/data/rules/**"
    words = ("port", "scan", ".", "--exclude", aside, "--sarif", str(folder / "scan.sarif"))
    session.run(sys.executable, "-m", "warpfront", *words, external=True, success_codes=[0, 15])
