"""The container engine: `protocol` is its interface, `docker` the implementation. Edge."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from warpfront.errors import EngineError
from warpfront.images.engine.protocol import (
    DEAD_MAN_SECONDS as DEAD_MAN_SECONDS,
)
from warpfront.images.engine.protocol import (
    DEFAULT_HOST as DEFAULT_HOST,
)
from warpfront.images.engine.protocol import (
    RUN_LABEL as RUN_LABEL,
)
from warpfront.images.engine.protocol import (
    Bind as Bind,
)
from warpfront.images.engine.protocol import (
    Engine as Engine,
)
from warpfront.images.engine.protocol import (
    Features as Features,
)
from warpfront.images.engine.protocol import (
    Progress as Progress,
)
from warpfront.images.engine.protocol import (
    RunRequest as RunRequest,
)
from warpfront.images.engine.protocol import (
    RunResult as RunResult,
)
from warpfront.images.engine.protocol import (
    StoredImage as StoredImage,
)


def connect(environment: Mapping[str, str]) -> Engine:
    """Return the engine to use, see `engine.docker.connect`. Raise `EngineError` for none."""
    from warpfront.images.engine import embedded  # noqa: PLC0415 - it imports this module

    engine_place = embedded.EnginePlace(state=embedded.folders(environment)[1])
    if not _may_be_somewhere(environment) and not engine_place.socket.exists():
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


def _may_be_somewhere(environment: Mapping[str, str]) -> bool:
    """Return true if any source of docker's own configuration exists; the SDK reads it."""
    configuration = environment.get("DOCKER_CONFIG") or Path.home() / ".docker"
    return (
        bool(environment.get("DOCKER_HOST") or environment.get("DOCKER_CONTEXT"))
        or Path(configuration, "config.json").exists()
        or Path(DEFAULT_HOST.removeprefix("unix://")).exists()
    )
