"""The container engine: `protocol` is its interface, `docker` the implementation. Edge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from warpfront.errors import EngineError
from warpfront.images.engine.protocol import (
    DEAD_MAN_SECONDS,
    DEFAULT_HOST,
    RUN_LABEL,
    Bind,
    Engine,
    Features,
    Progress,
    RunRequest,
    RunResult,
    StoredImage,
)

__all__ = ["DEAD_MAN_SECONDS", "DEFAULT_HOST", "RUN_LABEL", "Bind", "Engine", "Features"]
__all__ += ["Progress", "RunRequest", "RunResult", "StoredImage"]


def connect(environment: Mapping[str, str]) -> Engine:
    """Return the engine to use, see `engine.docker.connect`. Raise `EngineError` for none."""
    from warpfront.images.engine import embedded  # noqa: PLC0415 - it imports this module

    engine_place = embedded.EnginePlace(state=embedded.folders(environment)[1])
    configuration = environment.get("DOCKER_CONFIG") or Path.home() / ".docker"
    # Any source of docker's own configuration: the SDK reads it.
    is_named = environment.get("DOCKER_HOST") or environment.get("DOCKER_CONTEXT")
    places = (Path(configuration, "config.json"), Path(DEFAULT_HOST.removeprefix("unix://")))
    if not is_named and not any(path.exists() for path in (*places, engine_place.socket)):
        # The SDK and its HTTP take longer to load than a plan without an engine to make.
        raise nowhere(engine_place.host)
    from warpfront.images.engine import docker  # noqa: PLC0415 - see above

    return docker.connect(environment)


def nowhere(own_host: str) -> EngineError:
    return EngineError(
        f"no container engine: DOCKER_HOST is not set, no docker context is chosen, and neither "
        f"{DEFAULT_HOST} nor {own_host} exists",
        hint="warpfront engine start",
    )
