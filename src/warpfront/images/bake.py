"""The bake file: every cell to build as one flat target, chained by named contexts. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

_INTERPOLATION = re.compile(r"([$%])\{")

WHEELS_CONTEXT = "wheels"
TOOLS_CONTEXT = "tools"
SEALED_CONTEXT = "sealed"
CA_SECRET = "ca"  # noqa: S105 - the name of a BuildKit secret, not its value
PROXIES_SECRET = "proxies"  # noqa: S105 - as above
PROXIES_VARIABLE = "WARPFRONT_PROXIES"
PLATFORMS: Mapping[str, str] = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class BakeTarget:
    """An image to build. `contexts` are BuildKit's named contexts: name -> folder, `target:...`
    or `docker-image://...`. `machine` is its platform, `secrets` are arguments of `--secret`
    (`id=ca,src=ca.pem`). `moment` is the image's creation time (RFC 3339), "" for now. `stage` is
    the Dockerfile's stage to build, "" for the last.
    """

    name: str
    context: str
    contexts: Mapping[str, str]
    tag: str
    labels: Mapping[str, str]
    output: str
    machine: str
    secrets: tuple[str, ...] = ()
    moment: str = ""
    stage: str = ""


def bake_file(targets: Iterable[BakeTarget]) -> dict[str, object]:
    """Return the file's JSON value, with nothing for bake to interpolate."""
    by_name = {}
    for target in targets:
        definition: dict[str, object] = {
            "context": target.context,
            "dockerfile": "Dockerfile",
            "contexts": dict(target.contexts),
            "tags": [target.tag] if target.tag else [],
            "labels": dict(sorted(target.labels.items())),
            "output": [target.output],
            "platforms": [PLATFORMS[target.machine]],
        }
        if target.secrets:
            definition["secret"] = list(target.secrets)
        if target.stage:
            definition["target"] = target.stage
        if target.moment:
            # The one argument, and one that BuildKit takes for itself: no step sees it.
            epoch = int(datetime.fromisoformat(target.moment).timestamp())
            definition["args"] = {"SOURCE_DATE_EPOCH": str(epoch)}
        by_name[target.name] = _escaped(definition)
    return {"group": {"default": {"targets": list(by_name)}}, "target": by_name}


def proxy_script(proxies: Mapping[str, str]) -> str:
    """Return proxy variables (`HTTPS_PROXY`) as shell lines, under apt's lower-case names. They
    may contain passwords, so they travel as a secret: build arguments appear in the bake file and
    in BuildKit's record of the build.
    """
    lines = [
        f"export {name.lower()}={shlex.quote(value)}\n" for name, value in sorted(proxies.items())
    ]
    return "".join(lines)


def _escaped(value: object) -> object:
    """Bake reads `${...}` and `%{...}` in JSON strings as expressions; doubled signs are text."""
    if isinstance(value, str):
        return _INTERPOLATION.sub(r"\1\1{", value)
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return [_escaped(item) for item in value] if isinstance(value, list) else value
