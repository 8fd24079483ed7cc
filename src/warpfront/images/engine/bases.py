"""Sources of a base's bytes: the engine, its registry, or a bootstrap with mmdebstrap. Edge.

The root file system of a bootstrap is an image that engines load: the same tar, the same image on
every engine. An import would do, but for the moment that the engine writes into it.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO

from warpfront.errors import BlockedError, CommandFailedError, EngineError
from warpfront.images.built import ResolvedBase
from warpfront.images.engine import embedded
from warpfront.images.engine.embedded import PackageTree
from warpfront.images.engine.protocol import Engine, StoredImage
from warpfront.matrix.cell import BaseSource
from warpfront.matrix.language import Base, Bootstrap
from warpfront.system import process
from warpfront.system.digests import digest_of
from warpfront.system.packaged import packaged_toml
from warpfront.system.process import Command
from warpfront.system.progress import Line
from warpfront.system.references import address_of, is_loopback
from warpfront.system.store import exclusive

_PROBE_SECONDS = 5.0

SOURCE_LABEL = "dev.warpfront.base-source"
RECIPE_LABEL = "dev.warpfront.base-recipe"
_PUBLIC = "http://deb.debian.org/debian"
_PUBLIC_SECURITY = "http://deb.debian.org/debian-security"
_KEYRING = "usr/share/keyrings/debian-archive-keyring.gpg"
_RECIPE = packaged_toml("bootstrap.toml")
# The mount is in a namespace of its own, and ends with the command.
_MOUNTED = """size=$1 TMPDIR=$2 && shift 2 &&
mount -t tmpfs -o "size=$size,mode=1777" tmpfs "$TMPDIR" && export TMPDIR && exec "$@"
"""
# Six times the largest base that was made so far.
_LEAST_MEMORY = 6 * 2**30


def registry_reachable(reference: str) -> str | None:
    """Return None if the registry of a fully qualified reference answers at all, else the reason.

    Any HTTP answer counts: 401 is how most greet. Proxies and CA are those of requests:
    HTTP(S)_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE. Asks for at most 5 seconds.
    """
    import requests  # noqa: PLC0415 - planning may have no registry to ask

    host = reference.split("/", 1)[0]
    address = address_of(host)
    scheme = "http" if is_loopback(host) else "https"
    try:
        requests.get(
            f"{scheme}://{address}/v2/", timeout=_PROBE_SECONDS, allow_redirects=False, stream=True
        ).close()
    except requests.RequestException as error:
        from warpfront.system.http_answers import words_of  # noqa: PLC0415

        return f"{address}: {words_of(error)}"
    return None


def find_base(base: Base, engine: Engine) -> ResolvedBase | None:
    """Return the base as it would be used, without pulling or making anything; None = by a
    bootstrap that was not made yet. Raise `BlockedError` as `resolve_base` does.
    """
    if base.unpinned:
        raise BlockedError(
            f"base {base.name}: {base.reference} has no digest: {base.unpinned}",
            hint="pin it in matrix.yaml: `docker buildx imagetools inspect` prints the digest",
        )
    reason: str | None = ""
    if base.digest:
        is_here = engine.image(base.pinned) is not None
        reason = None if is_here else registry_reachable(base.reference)
    if reason is None:
        return ResolvedBase(
            name=base.name,
            source=BaseSource.REGISTRY,
            reference=base.pinned,
            identity=base.digest,
        )
    if base.bootstrap is None:
        raise BlockedError(
            f"base {base.name}: {base.reference} cannot be pulled: {reason}",
            hint="reach the registry, load the image, or declare a `bootstrap` for the base",
        )
    stored = engine.image(_reference(base.name, base.bootstrap))
    return None if stored is None else _bootstrapped(base, base.bootstrap, stored)


def resolve_base(base: Base, engine: Engine, *, cache: Path, on_line: Line) -> ResolvedBase:
    """Return the base, made if need be. In the engine by digest, or its registry answers:
    BuildKit takes it by digest. Else its bootstrap, once per recipe.

    Raise `BlockedError`, naming the registry and the reason, where neither is possible.
    """
    resolved_base = find_base(base, engine)
    if resolved_base is not None:
        return resolved_base
    assert base.bootstrap is not None
    stored = bootstrapped_image(base.name, base.bootstrap, engine, cache=cache, on_line=on_line)
    return _bootstrapped(base, base.bootstrap, stored)


def bootstrapped_image(
    name: str, bootstrap: Bootstrap, engine: Engine, *, cache: Path, on_line: Line
) -> StoredImage:
    """Return the image of a bootstrap, made where the engine does not have it; once per recipe."""
    recipe = recipe_digest(bootstrap)
    with exclusive(cache / "bases", on_line, name=f".{recipe}.lock"):
        stored = engine.image(_reference(name, bootstrap))
        if stored is None:
            tar = bootstrap_rootfs(bootstrap, cache, on_line)
            on_line(f"importing base {name} into {engine.name}")
            stored = engine.import_rootfs(
                tar,
                _reference(name, bootstrap),
                {SOURCE_LABEL: BaseSource.BOOTSTRAP.value, RECIPE_LABEL: recipe},
                _RECIPE["environment"],
            )
    return stored


def recipe_digest(bootstrap: Bootstrap) -> str:
    """sha256 hex of all that decides what a bootstrap contains, but for the packages' versions."""
    parts: list[object] = [bootstrap.suite, sorted(bootstrap.include)]
    parts += [_RECIPE["dpkg"], _RECIPE["emptied"], _RECIPE["environment"]]
    if not bootstrap.updates or bootstrap.release_may_be_old:
        parts.append([bootstrap.updates, bootstrap.release_may_be_old])
    if bootstrap.overlays:
        parts.append(list(bootstrap.overlays))
    if bootstrap.headers:
        parts.append(sorted(bootstrap.headers))
    return digest_of(parts)


def bootstrap_rootfs(bootstrap: Bootstrap, cache: Path, on_line: Line) -> Path:
    """Return a tar of a Debian root file system in the cache; whole, and once per recipe."""
    tar = cache / "bases" / f"{recipe_digest(bootstrap)}.tar"
    if tar.is_file():
        return tar
    tree = embedded.unpack("bootstrap", cache, on_line)
    on_line(f"bootstrapping Debian {bootstrap.suite}")
    tar.parent.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix=".aside-", dir=tar.parent) as folder,
        tempfile.TemporaryDirectory(prefix="warpfront-bootstrap-") as memory,
    ):
        aside = Path(folder) / "rootfs.tar"
        # apt downloads as a user of its own, who has to reach it.
        Path(memory).chmod(0o755)
        run = process.stream(in_memory(_mmdebstrap(bootstrap, tree, aside), Path(memory)), on_line)
        if run.returncode:
            raise EngineError(
                f"mmdebstrap of {bootstrap.suite} failed with {run.returncode}\n{run.stdout}",
                hint="check the machine's apt mirror; without root, uidmap must be installed; if "
                "memory was full, TMPDIR=/var/tmp takes a disk",
            )
        aside.replace(tar)
    return tar


def in_memory(command: Command, folder: Path) -> Command:
    """Return a command whose temporary files, in `folder`, are in memory: written to a disk and
    removed again, a root file system of 1.1 GB took twice as long. The same command where this
    user may mount nothing, memory is short, or TMPDIR names a place.
    """
    available = _available_bytes() // 2
    if "TMPDIR" in process.environment() or available < _LEAST_MEMORY:
        return command
    mounted = ("unshare", "--mount", "sh", "-c", _MOUNTED, "sh", str(available), str(folder))
    try:
        refused = process.run(Command(argv=(*mounted, "true"))).returncode
    except CommandFailedError:
        return command
    return command if refused else dataclasses.replace(command, argv=(*mounted, *command.argv))


def _available_bytes() -> int:
    """Return the memory that programs could take, as the kernel estimates it."""
    lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    estimates = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return 1024 * int(next(estimates, 0))


def apt_sources(bootstrap: Bootstrap, mirror: str, security: str) -> str:
    """Return the `sources.list` of a Debian suite, with its updates and security fixes, if any."""
    suite = bootstrap.suite
    lines = [f"{mirror} {suite} main"]
    if bootstrap.updates:
        lines += [f"{mirror} {suite}-updates main", f"{security} {suite}-security main"]
    lines += [f"{mirror} {overlay} main" for overlay in bootstrap.overlays]
    option = "[check-valid-until=no] " if bootstrap.release_may_be_old else ""
    return "".join(f"deb {option}{line}\n" for line in lines)


def _mmdebstrap(bootstrap: Bootstrap, tree: PackageTree, tar: Path) -> Command:
    """Fetched from this machine's mirror; the image itself names the public one."""
    suite = bootstrap.suite
    public, local = tar.parent / "sources.list", tar.parent / "mirror.list"
    public.write_text(apt_sources(bootstrap, _PUBLIC, _PUBLIC_SECURITY), encoding="ascii")
    mirror = embedded.machine_mirror(suite, _PUBLIC)
    security = embedded.machine_mirror(f"{suite}-security", _PUBLIC_SECURITY)
    local.write_text(apt_sources(bootstrap, mirror, security), encoding="ascii")
    own_keyring = tree.root / _KEYRING
    keyring = own_keyring if own_keyring.exists() else Path("/") / _KEYRING
    folders = " ".join(f'"$1{folder}"' for folder in _RECIPE["emptied"])
    # apt would bring the libraries that headers are of: gigabytes that no compiler reads.
    alone = (
        f'cd "$1/tmp" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get download '
        f"{' '.join(bootstrap.headers)} && "
        "chroot \"$1\" sh -c 'dpkg --path-exclude=/usr/lib/* --install --force-depends /tmp/*.deb'"
    )
    hooks = (
        *([f"--customize-hook={alone}"] if bootstrap.headers else []),
        f"--customize-hook=upload {public} /etc/apt/sources.list",
        f"--customize-hook=find {folders} -type f -delete",
    )
    argv = (
        str(tree.program("perl")),
        str(tree.program("mmdebstrap")),
        "--variant=minbase",
        f"--keyring={keyring}",
        *(f"--dpkgopt={option}" for option in _RECIPE["dpkg"]),
        *([f"--include={','.join(bootstrap.include)}"] if bootstrap.include else []),
        *hooks,
        suite,
        str(tar),
        str(local),
    )
    return Command(argv=argv, environment={**tree.environment, "LC_ALL": "C"})


def _reference(name: str, bootstrap: Bootstrap) -> str:
    return f"localhost/warpfront/base:{name}-{recipe_digest(bootstrap)[:12]}"


def _bootstrapped(base: Base, bootstrap: Bootstrap, stored: StoredImage) -> ResolvedBase:
    return ResolvedBase(
        name=base.name,
        source=BaseSource.BOOTSTRAP,
        reference=_reference(base.name, bootstrap),
        identity=stored.id,
        recipe=recipe_digest(bootstrap),
    )


_PIECE = 1 << 20


def image_archive(
    tar: Path,
    reference: str,
    *,
    architecture: str,
    labels: Mapping[str, str],
    environment: Mapping[str, str],
) -> Iterator[bytes]:
    """Yield an archive for `docker load`, in pieces. The image is as old as its newest file."""
    with tar.open("rb") as layer:
        digest = hashlib.file_digest(layer, "sha256").hexdigest()
    with tarfile.open(tar, "r:") as members:
        newest = max((int(member.mtime) for member in members), default=0)
    created = datetime.fromtimestamp(newest, UTC).isoformat().replace("+00:00", "Z")
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": {
                "Env": [f"{name}={value}" for name, value in environment.items()],
                "Labels": dict(sorted(labels.items())),
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": created, "created_by": "a root file system"}],
        },
        sort_keys=True,
    ).encode()
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    folder = f"{digest}/layer.tar"
    manifest = [{"Config": name, "RepoTags": [reference], "Layers": [folder]}]
    with tempfile.TemporaryFile() as packed:
        # Engines store and push a layer as received. Level 6 takes three times as long as 1, for a
        # tenth less of bytes. Without a name or time.
        with tar.open("rb") as layer, gzip.GzipFile("", "wb", 1, packed, mtime=0) as stream:
            shutil.copyfileobj(layer, stream, _PIECE)
        parts: dict[str, IO[bytes]] = {
            name: io.BytesIO(config),
            folder: packed,
            "manifest.json": io.BytesIO(json.dumps(manifest).encode()),
        }
        for part, file in parts.items():
            member = tarfile.TarInfo(part)
            member.size = file.seek(0, io.SEEK_END)
            file.seek(0)
            yield member.tobuf(tarfile.GNU_FORMAT)
            yield from iter(partial(file.read, _PIECE), b"")
            yield bytes(-member.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)
