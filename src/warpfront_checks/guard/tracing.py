"""The libraries that the dynamic loader would choose for the stack, without running any."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from .at_import import libraries
from .fast_path import mapped
from .libraries import Shadow, shadows
from .manifest import Manifest

_TRACED = re.compile(r"^\s*(?:\S+ => )?(?P<path>/.*) \(0x[0-9a-f]+\)$", re.MULTILINE)
_SECONDS = 60.0


def traced_shadows(
    manifest: Manifest, names: Iterable[str], environment: Mapping[str, str]
) -> Iterator[Shadow]:
    """Yield the shadows of torch's extension module and all it needs, as the loader would
    resolve them in this environment. Nothing of torch is run for that.
    """
    wanted = replace(manifest, files={name: manifest.files[name] for name in names})
    sealed = libraries(wanted, os.path.realpath(manifest.location))
    loader = next((path for path in mapped() if "/ld-" in path or "/ld.so" in path), None)
    for path in manifest.files.get("torch", ()):
        if loader and path.startswith("torch/_C.") and path.endswith(".so"):
            loaded = _traced(loader, f"{manifest.location}/{path}", environment)
            yield from shadows(sealed, loaded) if loaded else ()


def _traced(loader: str, library: str, environment: Mapping[str, str]) -> list[str]:
    """Return the files that the dynamic loader would map for a library; nothing if it fails."""
    try:
        done = subprocess.run(
            [loader, library],
            env={**environment, "LD_TRACE_LOADED_OBJECTS": "1"},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [os.path.realpath(match["path"]) for match in _TRACED.finditer(done.stdout)]
