"""uv as a command with this site's sources. Edge.

URLs with credentials reach uv through its environment, never through its arguments.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

import uv

from warpfront.system import process
from warpfront.system.process import Command
from warpfront.wheels.reach import Reach
from warpfront.wheels.sources import Site

STACK_INDEX = "stack"
_KEPT_SETTINGS = frozenset(
    {"UV_CACHE_DIR", "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_PYTHON_DOWNLOADS", "UV_HTTP_RETRIES"}
)


def uv_binary() -> Path:
    """The uv that came with this installation."""
    return Path(uv.find_uv_bin())


def uv_version() -> str:
    return importlib.metadata.version("uv")


def uv_command(
    arguments: tuple[str, ...],
    *,
    site: Site,
    indexes: Reach,
    cwd: Path | None = None,
    extra: Mapping[str, str] | None = None,
) -> Command:
    """uv with this site's sources. Indexes come first to last; the cell's own is the last, so that
    what PyPI has too comes from PyPI.
    """
    ours = [site.with_credentials(url) for url in indexes.site if url != indexes.stack]
    if indexes.stack is not None:
        ours.append(f"{STACK_INDEX}={site.with_credentials(indexes.stack)}")
    environment = {
        **site.proxies,
        **({"SSL_CERT_FILE": site.certificate} if site.certificate else {}),
        "UV_HTTP_TIMEOUT": "30",
        "UV_FIND_LINKS": ",".join(site.with_credentials(url) for url in site.find_links),
        **(extra or {}),
    }
    if ours:
        environment |= {"UV_INDEX": " ".join(ours[:-1]), "UV_DEFAULT_INDEX": ours[-1]}
    hosts = tuple(word for host in site.trusted_hosts for word in ("--allow-insecure-host", host))
    settings = [name for name in process.environment() if name.startswith("UV_")]
    return Command(
        argv=(str(uv_binary()), *arguments, *hosts, *(() if ours else ("--no-index",))),
        cwd=cwd,
        environment={name: value for name, value in environment.items() if value},
        timeout_seconds=1800,
        unset=tuple(name for name in settings if name not in _KEPT_SETTINGS),
    )


def option_file(folder: Path, option: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    """The option with a file of `lines`; nothing where there are none."""
    if not lines:
        return ()
    (folder / f"{option}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    return (f"--{option}", f"{option}.txt")
