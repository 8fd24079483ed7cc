"""The labels of an image: the OCI standard ones, and ours under `dev.warpfront.`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.version import Version

from warpfront.images.built import CREATED, REVISION, ResolvedBase
from warpfront.matrix.cell import BaseSource, Cell
from warpfront.matrix.language import Project
from warpfront.matrix.vendors import VENDORS
from warpfront.system.tree_files import Provenance
from warpfront.wheels.lock.values import WheelLock

CELL = "dev.warpfront.cell"
CONTENT_HASH = "dev.warpfront.content-hash"
BASE = "dev.warpfront.base"
BASE_SOURCE = "dev.warpfront.base-source"
LOCK = "dev.warpfront.lock"
UV = "dev.warpfront.uv"
RELAXED = "dev.warpfront.relaxed"
PATCHED = "dev.warpfront.patched"
POLICIES = "dev.warpfront.policies"
_OCI = "org.opencontainers.image"
_OURS = "dev.warpfront"
SOURCE = f"{_OCI}.source"

Facts = Mapping[str, object]
"""What the session `load` found in an image (`warpfront_checks.load`)."""


def image_labels(
    cell: Cell,
    *,
    project: Project,
    lock: WheelLock,
    base: ResolvedBase,
    content_hash: str,
    provenance: Provenance,
    uv: str,
) -> Mapping[str, str]:
    """Label name -> value. The base named is the one at the bottom of the chain, with where
    it came from; `uv` is the version of what installed the wheels.
    """
    torch = {wheel.name: wheel.version for wheel in lock.wheels}.get("torch", cell.torch)
    is_made, bootstrap = base.source is BaseSource.BOOTSTRAP, cell.base.bootstrap
    words = cell.base.reference  # for a reader, without the mirror that served it
    if is_made and bootstrap is not None:
        suites = " with updates and security fixes" if bootstrap.updates else ""
        words = (
            f"bootstrapped Debian {bootstrap.suite}{suites}, by mmdebstrap from a Debian mirror; "
            f"recipe sha256:{base.recipe}; not {cell.base.reference}"
        )
    # What is not as its authors published it: `lmcache 0.3.9+wf.p1a2b3c4d,...`.
    changed = {wheel.package for wheel in lock.patched}
    patched = sorted(f"{w.name} {w.version}" for w in lock.wheels if w.name in changed)
    set_here = ",".join(
        f"{policy.name}={policy.value}" for policy in cell.policies if policy.level == "set"
    )
    return {
        f"{_OCI}.title": f"{project.name} {cell.image}",
        f"{_OCI}.description": cell.title,
        SOURCE: project.source,
        f"{_OCI}.licenses": project.licenses,
        REVISION: provenance.revision,
        CREATED: provenance.created,
        f"{_OCI}.version": cell.tag,
        f"{_OCI}.base.name": base.reference if is_made else cell.base.reference,
        f"{_OCI}.base.digest": base.identity,
        CELL: cell.id,
        CONTENT_HASH: content_hash,
        BASE_SOURCE: base.source.value,
        BASE: words,
        f"{_OURS}.vendor": cell.vendor,
        f"{_OURS}.targets": ",".join(cell.targets),
        f"{_OURS}.toolkit": str(cell.toolkit or ""),
        f"{_OURS}.torch": torch,
        f"{_OURS}.python": cell.python,
        LOCK: lock.digest,
        UV: uv,
        RELAXED: ",".join(sorted(relaxed.package for relaxed in lock.relaxed)),
        **({PATCHED: ",".join(patched)} if lock.patched else {}),
        **({POLICIES: set_here} if set_here else {}),
    }


def label_disagreements(cell: Cell, labels: Mapping[str, str], facts: Facts) -> Iterator[str]:
    """Yield claims of a built image's labels, its tag or the matrix that the image contradicts."""
    vendor = VENDORS[cell.vendor]
    from_base = vendor.torch_from == "base"
    truths = {"torch": facts.get("torch"), "python": facts.get("python")}
    if not from_base:  # a vendor's fork of torch does not know the toolkit of its base
        truths["toolkit"] = facts.get("toolkit")
    relaxed = facts.get("relaxed")
    if isinstance(relaxed, list):
        truths["relaxed"] = ",".join(map(str, relaxed))
    patched = facts.get("patched")
    if isinstance(patched, list) and (patched or PATCHED in labels):
        truths["patched"] = ",".join(map(str, patched))
    for name, truth in truths.items():
        label = labels.get(f"{_OURS}.{name}")
        is_fork = name == "torch" and from_base
        if label != truth and not (is_fork and _release(str(label)) == _release(str(truth))):
            yield f"label {_OURS}.{name} says {label!r}, the image holds {truth!r}"
    # The tag, without parsing it, with torch's version, toolkit and Python.
    version = labels.get(f"{_OCI}.version")
    if version != cell.tag:
        yield f"label {_OCI}.version says {version!r}, its tag is {cell.tag!r}"
    torch, toolkit = str(facts.get("torch", "")), str(facts.get("toolkit", ""))
    release = _release(torch) if from_base else torch.partition("+")[0]
    words = {"torch": release, "python": f"py{facts.get('python', '')}"}
    if not from_base:
        words["toolkit"] = toolkit or cell.vendor
    for name, word in words.items():
        if word not in cell.tag.split("-"):
            yield f"tag {cell.tag} does not name the {name} of the image, {word}"
    # The label's targets with the matrix's and torch's arch list.
    archs = facts.get("archs")
    listed = set(map(str, archs)) if isinstance(archs, list) else set()
    promised = (labels.get(f"{_OURS}.targets") or "").split(",")
    if tuple(promised) != cell.targets:
        yield f"label {_OURS}.targets says {promised}, the matrix {list(cell.targets)}"
    for target in cell.targets:
        serving = vendor.accepted_archs(target)
        if serving and not listed & set(serving):
            yield f"target {target} is promised, torch's arch list is {sorted(listed)}"


def _release(version: str) -> str:
    """`2.9.0a0+git123` -> `2.9.0`: a fork counts its builds in what follows."""
    try:
        return ".".join(str(part) for part in Version(version).release)
    except ValueError:
        return version
