"""uv as a command with this site's sources. Edge.

Credentials reach uv through its environment, never through its arguments or a file. uv resolves
locks, builds wheels, and writes a requirements file by hash, as `pip --require-hashes` reads it.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import uv

from warpfront.errors import LockError
from warpfront.system import process
from warpfront.system.process import Command, Run
from warpfront.system.store import place_program, scratch_folder
from warpfront.system.toml import dump_toml
from warpfront.wheels.sources import Site, answering, local_path

Table = Mapping[str, object]
"""One of uv's `[[index]]`."""
_KEPT_SETTINGS = frozenset(
    {"UV_CACHE_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_PYTHON_DOWNLOADS", "UV_HTTP_RETRIES"}
)


def uv_binary() -> Path:
    """Return the uv that came with this installation."""
    return Path(uv.find_uv_bin())


def uv_version() -> str:
    return importlib.metadata.version("uv")


def placed_uv(cache: Path) -> Path:
    """Return a folder with uv alone: the one program that a build needs from outside."""
    return place_program(uv_binary(), cache / "tools" / f"uv-{uv_version()}")


def uv_command(
    arguments: tuple[str, ...],
    *,
    site: Site,
    folder: Path,
    indexes: tuple[str, ...] | None = None,
    overlay: Sequence[Table] = (),
    extra: Mapping[str, str] | None = None,
    unread: tuple[str, ...] = (),
    public_first: bool = False,
) -> Command:
    """Return a command of uv, in `folder`, with this site's sources and no settings
    of this machine.

    uv takes a name from the first source that has it (its `first-index`): the `overlay`,
    find-links, the site's `indexes` (None for those that answer), in this order. `public_first`
    reverses the latter two, for names that are known to be public, at versions that a site's own
    sources need not have. `unread` are distributions whose demands are not read.
    """
    indexes = answering(site) if indexes is None else indexes
    own = _sources(site, indexes, public_first=public_first)
    sources = [*overlay, *own] if own else []
    document: dict[str, object] = {"index": sources} if sources else {"no-index": True}
    if unread:
        document["dependency-metadata"] = [{"name": name, "requires-dist": []} for name in unread]
    (folder / "uv.toml").write_text(dump_toml(document), "utf-8")
    environment = {
        **site.proxies,
        **({"SSL_CERT_FILE": site.certificate} if site.certificate else {}),
        "UV_HTTP_TIMEOUT": "30",
        **_credentials(site, sources),
        **(extra or {}),
    }
    hosts = tuple(word for host in site.trusted_hosts for word in ("--allow-insecure-host", host))
    settings = [name for name in process.environment() if name.startswith("UV_")]
    return Command(
        argv=(str(uv_binary()), *arguments, "--config-file", str(folder / "uv.toml"), *hosts),
        cwd=folder,
        environment={name: value for name, value in environment.items() if value},
        timeout_seconds=1800,
        unset=tuple(name for name in settings if name not in _KEPT_SETTINGS),
    )


def _sources(site: Site, indexes: tuple[str, ...], *, public_first: bool) -> list[Table]:
    """Return uv's `[[index]]` tables in its order; the last is its default, or PyPI would be."""
    tables: list[Table] = []
    for number, url in enumerate(site.find_links):
        path = local_path(url)
        address = url if path is None else path.absolute().as_uri()
        tables.append({"name": f"find-{number}", "url": address, "format": "flat"})
    tables += [{"name": f"site-{number}", "url": url} for number, url in enumerate(indexes)]
    if public_first:
        tables.reverse()
    if tables:
        tables[-1] = {**tables[-1], "default": True}
    return tables


def _credentials(site: Site, sources: Iterable[Table]) -> Mapping[str, str]:
    """Users and passwords as uv reads them from its environment, for each source by its name."""
    credentials: dict[str, str] = {}
    for source in sources:
        pair = site.credentials_for(str(source["url"]))
        if pair is not None:
            name = str(source["name"]).upper().replace("-", "_")
            credentials |= {
                f"UV_INDEX_{name}_USERNAME": pair[0],
                f"UV_INDEX_{name}_PASSWORD": pair[1],
            }
    return credentials


def wheels_for(python: str, platform: str) -> tuple[str, ...]:
    """Return the options that take wheels alone, for Python `python` (X.Y) on uv's `platform`."""
    return (
        *("--python", sys.executable, "--python-version", python),
        *("--python-platform", platform, "--only-binary", ":all:"),
    )


def option_file(folder: Path, option: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return the option with a file of `lines`; nothing where there are none."""
    if not lines:
        return ()
    (folder / f"{option}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return (f"--{option}", f"{option}.txt")


_PYTHON = "3.11"
"""The oldest Python of the machines; uv resolves for this one and all newer ones."""


def hash_requirements(
    requirements: tuple[str, ...], *, site: Site, run: Run, without: tuple[str, ...] = ()
) -> str:
    """Return the text of a requirements file for `requirements` and all that they need, on every
    machine and Python, but for the distributions `without`, which are installed in another way.
    """
    with scratch_folder() as folder:
        (folder / "wanted.in").write_text("\n".join(requirements) + "\n", "utf-8")
        arguments = (
            *("pip", "compile", "wanted.in", "--quiet", "--universal", "--generate-hashes"),
            *("--python", sys.executable, "--python-version", _PYTHON),
            *("--no-header", "--no-annotate"),
            *(word for name in without for word in ("--no-emit-package", name)),
        )
        command = uv_command(arguments, site=site, folder=folder)
        hint = "the requirements of `install:` in matrix.yaml have to resolve on this machine"
        text = run(command).check(hint=hint).stdout
    if "--hash=sha256:" not in text:
        raise LockError(f"no hash for {', '.join(requirements)}", hint=hint)
    return text
