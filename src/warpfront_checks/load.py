"""The `load` session: exactly the claimed distributions, and torch and its companions load."""

from __future__ import annotations

import getpass
import importlib
import importlib.metadata
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from warpfront_checks import kpack
from warpfront_checks.check_options import USUAL, CheckOptions
from warpfront_checks.claims import Claims
from warpfront_checks.distributions import (
    IMPORT_NAMES,
    Installed,
    closure_conflicts,
    duplicates,
    foreign_toolkit,
    pip_conflicts,
    read_installed,
    version_differences,
)
from warpfront_checks.guard.places import places_of_this_python
from warpfront_checks.guard.policy import normalized, read_policy
from warpfront_checks.guarded import check_guard
from warpfront_checks.image_contents import read_contents
from warpfront_checks.results import (
    CheckFinding,
    Checks,
    Recorder,
    failed,
    judged,
    judged_by_all,
    passed,
    several,
)
from warpfront_checks.stack.device_code import DeviceCode, read_device_code
from warpfront_checks.stack.elf_symbols import dynamic_of
from warpfront_checks.stack.installed_code import added_to, find_lacking_libraries, find_other_numpy
from warpfront_checks.torch_devices import environment_of, read_arch_list, rocm_release

_ALL_CANDIDATES = (10, 1)
"""ROCm whose loader goes on to the next archive where one has no such kernel
(ROCm/rocm-systems shared/kpack/runtime/src/loader.cpp @1ddbe7e9); not known of earlier ones.
"""
_OTHER_NUMBERS = (7, 15)
"""From this HIP on, ROCm's own number is another: HIP 7.15 is ROCm 10.0's."""
_TORCH = ("torch", *IMPORT_NAMES)


def record_load(claims: Claims, recorder: Recorder, _effort: CheckOptions = USUAL) -> None:
    """Check the current Python against the claims. Needs no device."""
    installed, environment = read_installed(), recorder.environment
    environment.update(python=platform.python_version(), executable=sys.executable)
    extension = partial(import_extension, archs=claims.archs)
    # The claimed ones of the stack; in the current Python, those that are installed.
    names = [*claims.stack, *claims.versions] if claims.image else [*installed.versions]
    companions = [name for name in IMPORT_NAMES if name in map(normalized, names)]
    no_lock = "" if claims.versions else "no lock: versions are not known"
    no_guard = "" if claims.guard is not None else "no guard is claimed"
    python = "" if claims.python else "no Python version is claimed"
    distributions = added_to(installed, claims.stack, claims.versions)
    archs = "" if claims.archs else "the target needs no device code"
    image = claims.vendor, claims.smoke
    code: Checks = {"device code": archs or partial(find_device_code, claims, installed)}
    numpy: Checks = {"numpy": no_lock or partial(find_other_numpy, distributions)}
    policies: Checks = {"policies": partial(match_policies, claims)}
    contents: Checks = {"contents": partial(record_contents, environment)}
    checks: Checks = {
        "torch imports": partial(import_torch, environment),
        "python version": python or partial(match_python, claims),
        "machine type": partial(match_machine, claims),
        "torch build": partial(match_build, claims),
        "versions": no_lock or partial(match_versions, claims, installed),
        "installed once": partial(find_duplicates, claims, installed),
        "one toolkit": partial(find_foreign_toolkit, claims, installed),
        "arch list": archs or partial(cover_target, claims),
        **(code if claims.vendor == "amd" else {}),
        "dependencies": partial(check_dependencies, claims, installed),
        "libraries": no_lock or partial(find_lacking_libraries, distributions, *image),
        **(numpy if "numpy" in installed.versions else {}),
        "guard": no_guard or partial(check_guard, claims.guard),
        "user": no_guard or check_user,
        **(policies if claims.policies else {}),
        **{f"{name} works": partial(use_companion, name) for name in companions},
        **{f"{name} imports": partial(extension, name) for name in claims.extensions},
        "facts": partial(record_facts, installed, environment),
        **(contents if claims.image else {}),
    }
    recorder.run(checks)


def import_extension(name: str, archs: Sequence[str] = ()) -> CheckFinding:
    """Import a module that was built against torch, and check that its device code, if it has
    some, is for one of `archs`. One built against another torch fails at the import: symbols of C++
    are missing, or an ABI check of its own raises.
    """
    importlib.import_module("torch")
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        return failed(f"import {name}: {type(error).__name__}: {error}")
    file = getattr(module, "__file__", None)
    code = read_device_code(Path(file)) if file else DeviceCode()
    details = {"file": str(file), "device_code": dict(code.sizes), "unread": list(code.unread)}
    wrong = []
    if code.sizes and archs and not code.unread and not set(archs) & set(code.sizes):
        present = " ".join(sorted(code.sizes))
        wrong.append(f"{name} has device code for {present}, none for {archs[0]}")
    return judged(wrong, "; ".join(code.unread), **details)


def record_facts(installed: Installed, environment: dict[str, object]) -> CheckFinding:
    """Record the facts of this Python, to compare them with labels and tags. Versions are as
    installed, not as planned. `toolkit` is name and version as in a matrix (`cuda13.0`), "" for a
    CPU build; `protected` are the guard's distributions, None without one.
    """
    path = places_of_this_python().policy
    policy = read_policy(path) if path.is_file() else None
    torch: Any = importlib.import_module("torch")
    builds = (("rocm", rocm_release(torch)), ("cuda", getattr(torch.version, "cuda", None)))
    toolkit = next((name + version for name, version in builds if version), "")
    facts = {
        "torch": installed.versions["torch"][0],
        "toolkit": toolkit or ("xpu" if getattr(torch.version, "xpu", None) else ""),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "machine": platform.machine(),
        "archs": list(read_arch_list(torch)),
        "protected": None if policy is None else policy.pinned(),
        "relaxed": None if policy is None else sorted(policy.relaxed),
        "patched": patched_versions(installed),
    }
    environment["facts"] = facts
    return passed(f"torch {facts['torch']} {facts['toolkit']}".rstrip())


def record_contents(environment: dict[str, object]) -> CheckFinding:
    """Record the contents of this image, for its SBOM."""
    contents = read_contents()
    environment["contents"] = contents.document()
    count, packages = len(contents.distributions), len(contents.packages)
    wrong = [] if count else ["no distribution is found here"]
    return judged(wrong, f"{count} distributions, {packages} Debian packages")


def match_policies(claims: Claims) -> CheckFinding:
    """Check the environment against the runtime policies; a mere advice is only reported."""
    wrong, advice = [], []
    for policy in claims.policies:
        name, level, claimed = policy["name"], policy["level"], policy["value"]
        value = os.environ.get(name)
        if level == "set" and value != claimed:
            wrong.append(f"{name} is {value!r}, claimed is {claimed!r}: {policy['effect']}")
        elif level == "forbid" and value is not None and re.search(claimed, value):
            wrong.append(f"{name} is {value!r}: {policy['effect']} ({policy['source']})")
        elif level == "advise":
            advice.append(f"{name}: {claimed}")
    summary = f"advice: {'; '.join(advice)}" if advice else ""
    return judged_by_all(wrong, summary, policies=[dict(policy) for policy in claims.policies])


def import_torch(environment: dict[str, object]) -> CheckFinding:
    """Check that torch imports, and is the installed distribution's, not another folder."""
    before = time.monotonic()
    try:
        torch: Any = importlib.import_module("torch")
    except (ImportError, OSError) as error:
        return failed(f"import torch: {type(error).__name__}: {error}")
    seconds = time.monotonic() - before
    environment.update(environment_of(torch))
    where, version = Path(torch.__file__).resolve(), torch.__version__
    owned = importlib.metadata.distribution("torch").locate_file("torch/__init__.py")
    details = {"import_seconds": round(seconds, 3), "file": str(where), "version": version}
    other = f"torch comes from {where}, but the installed one is at {owned}"
    wrong = [other] if where != Path(str(owned)).resolve() else []
    return judged(wrong, f"torch {version} in {seconds:.1f} s", **details)


def match_python(claims: Claims) -> CheckFinding:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != claims.python:
        return failed(f"Python is {running}, claimed is {claims.python}", executable=sys.executable)
    return passed(running)


def match_machine(claims: Claims) -> CheckFinding:
    """Check that interpreter and extension are for this machine, and for the claimed one."""
    machine = platform.machine()
    torch: Any = importlib.import_module("torch")
    extension = torch._C.__file__  # noqa: SLF001 - the extension's own file
    files = {"interpreter": Path(sys.executable).resolve(), "torch._C": Path(extension)}
    machines = {name: dynamic_of(file).machine or "no ELF file" for name, file in files.items()}
    expected = claims.machine or machine
    wrong = [f"this machine is {machine}"] if machine != expected else []
    wrong += [f"{name} is built for {kind}" for name, kind in machines.items() if kind != expected]
    lines = [f"{each}, not {expected}" for each in wrong[:1]]
    return judged(lines, machine, machine=machine, **machines)


def match_build(claims: Claims) -> CheckFinding:
    """Compare torch's own build facts with the toolkit: PyPI's metadata has no label."""
    torch: Any = importlib.import_module("torch")
    toolkits = {name: getattr(torch.version, name, None) for name in ("cuda", "hip", "rocm")}
    claimed, running = claims.versions.get("torch", ""), str(torch.__version__)
    public, _, label = claimed.partition("+")
    running_public, _, running_label = running.partition("+")
    name, version = _toolkit_of(claims)
    cuda, hip, release = toolkits["cuda"], toolkits["hip"] or "", rocm_release(torch)
    # The claimed build, its version in torch, and that of another.
    builds = {"cuda": ("a CUDA build", cuda, hip), "rocm": ("a ROCm build", hip, cuda)}
    none = f"a build for {name or 'the CPU'}", "none", cuda or hip
    build, present, other = builds.get(name, none)
    wrong = ""
    if claimed and running_public != public:
        wrong = f"torch.__version__ is {running}, the lock has {claimed}"
    elif label and running_label != label:
        wrong = f"torch.__version__ is {running}, the lock's label is +{label}"
    elif other or not present:
        wrong = f"claimed is {build}; torch says cuda {cuda}, hip {toolkits['hip']}"
    elif name == "cuda" and version not in {"", cuda}:
        wrong = f"torch is built for CUDA {cuda}, not {version}"
    elif name == "rocm" and version and _numbers(release) != _numbers(version):
        wrong = f"torch is built for HIP {hip} (ROCm {release}), not ROCm {version}"
    elif name == "rocm" and _OTHER_NUMBERS > _numbers(hip) != _numbers(release):
        wrong = f"its label is of ROCm {release}, and its HIP {hip} of another release"
    return judged([wrong] if wrong else [], f"torch {running}", torch=running, **toolkits)


def _toolkit_of(claims: Claims) -> tuple[str, str]:
    """Return the claimed toolkit, or that of the vendor's torch, of no version."""
    return claims.toolkit or ({"nvidia": "cuda", "amd": "rocm"}.get(claims.vendor, ""), "")


def _numbers(version: str) -> tuple[int, ...]:
    """Return major and minor of `6.4.43482`."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def match_versions(claims: Claims, installed: Installed) -> CheckFinding:
    wrong = version_differences(installed, claims.versions)
    summary = f"{len(claims.versions)} distributions as locked"
    return judged_by_all(wrong, summary, differences=wrong)


def find_duplicates(claims: Claims, installed: Installed) -> CheckFinding:
    wrong = duplicates(installed, (*_TORCH, *claims.stack))
    return judged_by_all(wrong, duplicates=wrong)


def find_foreign_toolkit(claims: Claims, installed: Installed) -> CheckFinding:
    """Check only the libraries that torch itself needs. Other packages may bring more: xgboost
    brings NCCL, and the guard lets such libraries come if they overwrite nothing.
    """
    reachable = closure_conflicts(installed, _TORCH).checked
    needed = replace(installed, versions={name: installed.versions[name] for name in reachable})
    name, version = _toolkit_of(claims)
    wrong = foreign_toolkit(needed, name or "cpu", version)
    return judged_by_all(wrong, found=wrong, distributions=len(needed.versions))


def cover_target(claims: Claims) -> CheckFinding:
    """Check that torch has code for the target. The list is compiled in: no device is needed."""
    listed = read_arch_list(importlib.import_module("torch"))
    serving = [arch for arch in claims.archs if arch in listed]
    names = " ".join(listed) or "empty"
    wrong = [] if serving else [f"torch's arch list ({names}) has nothing for {claims.target}"]
    summary = f"{serving[0]} serves {claims.target}" if serving else ""
    return judged(wrong, summary, listed=list(listed), would_serve=list(claims.archs))


def find_device_code(claims: Claims, installed: Installed) -> CheckFinding:
    """Check that the packages and archives with the code for the target are present. torch
    itself reports their absence by `hipErrorInvalidImage` at the first kernel, with a device alone.
    """
    torch: Any = importlib.import_module("torch")
    paths = kpack.find_archives(Path(torch.__file__).resolve().parents[1])
    try:
        archives = tuple(map(kpack.read_archive, paths))
    except kpack.KpackError as error:
        return failed(f"an archive of device code cannot be read: {error}")
    variants = kpack.incomplete_variants(archives, claims.target)
    wrong = [
        *kpack.missing_device_packages(installed, claims.target),
        *kpack.missing_code(archives, claims.archs or (claims.target,)),
        *(variants if _numbers(rocm_release(torch)) < _ALL_CANDIDATES else ()),
    ]
    details: dict[str, object] = {
        "archives": {Path(archive.path).name: dict(archive.kernels) for archive in archives},
        "variants": variants,
    }
    count = sum(archive.kernels.get(claims.target, 0) for archive in archives)
    summary = f"{count} code objects for {claims.target} in {len(archives)} archives"
    none = "in the libraries themselves: no archives of device code are here"
    return judged_by_all(wrong, summary if archives else none, **details)


def check_dependencies(claims: Claims, installed: Installed) -> CheckFinding:
    """Run the image's `pip check`; read ourselves without pip, or if only torch is ours."""
    complaints = pip_conflicts() if claims.image else None
    if complaints is not None:
        relaxed, wrong = split_relaxed(complaints, claims)
        by = "pip check"
        return judged_by_all(wrong, by, by=by, relaxed=relaxed, complaints=wrong)
    conflicts = closure_conflicts(installed, installed.versions if claims.image else _TORCH)
    scope = "all distributions" if claims.image else "torch, its companions and what they require"
    relaxed, wrong = split_relaxed(conflicts.conflicts, claims)
    by, checked, unread = "own reading", len(conflicts.checked), list(conflicts.unread)
    details = {"by": by, "relaxed": relaxed, "scope": scope, "checked": checked, "unread": unread}
    if unread and not wrong:
        return failed(f"cannot be judged: {several(unread)}", **details)
    summary = f"{checked} distributions ({scope}), {by}"
    return judged_by_all(wrong, summary, **details, **({"conflicts": wrong} if wrong else {}))


def split_relaxed(complaints: Iterable[str], claims: Claims) -> tuple[list[str], list[str]]:
    """Return (complaints of packages that may complain, the others), by their first words."""
    relaxed = (claims.guard or {}).get("relaxed", {})
    names = set(relaxed) if isinstance(relaxed, Mapping) else set()
    split: tuple[list[str], list[str]] = ([], [])
    for line in complaints:
        split[normalized(line.split()[0]) not in names].append(line)
    return split


def use_companion(name: str) -> CheckFinding:
    """Import a companion, and do one small thing that needs its compiled part."""
    module: Any = importlib.import_module(IMPORT_NAMES[name])
    torch: Any = importlib.import_module("torch")
    version, wrong = str(getattr(module, "__version__", "unknown")), []
    if name == "torchvision":
        boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 1.9], [5.0, 5.0, 6.0, 6.0]])
        indices = module.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
        if indices != [0, 2]:
            wrong.append(f"torchvision.ops.nms kept {indices}, not [0, 2]")
    elif name == "torchaudio":
        ramp = torch.linspace(-0.5, 0.5, 64)
        same = module.functional.lfilter(ramp, torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]))
        if not torch.equal(same, ramp):
            wrong.append("torchaudio.functional.lfilter's identity changed its input")
    else:
        importlib.import_module("triton.language")
        importlib.import_module("triton._C.libtriton")
    details = {} if wrong else {"file": str(module.__file__)}
    return judged(wrong, version, version=version, **details)


def check_user() -> CheckFinding:
    """Check that the user has a name, and that its home and the temporary folder are writable."""
    wrong, name, temporary, reason = [], "", "", ""
    try:
        name = getpass.getuser()
    except (KeyError, OSError) as error:
        wrong.append(f"getpass.getuser() raises {error}: set USER")
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.expanduser raises where there is none
    try:
        if Path(home).is_absolute():
            tempfile.TemporaryFile(dir=home).close()
        else:
            reason = f"{home} is no absolute path"
    except OSError as error:
        reason = f"{home}: {error.strerror}"
    if reason:
        wrong.append(f"HOME cannot be written: {reason}: set it to a folder of uid {os.getuid()}")
    try:
        temporary = tempfile.gettempdir()
    except OSError as error:
        wrong.append(f"{error}: add --tmpfs /tmp:exec")
    return judged(
        wrong, f"{name}, {home}", uid=os.getuid(), user=name, home=home, temporary=temporary
    )


def patched_versions(installed: Installed) -> list[str]:
    """Return the distributions rebuilt with patches, by the local label of their version."""
    return sorted(
        f"{normalized(name)} {version}"
        for name, versions in installed.versions.items()
        for version in versions
        if re.search(r"[+.]wf\.p[0-9a-f]{8}$", version)
    )
