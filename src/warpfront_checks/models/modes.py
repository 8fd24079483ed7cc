"""The sessions `numerics` and `models`: networks, then whole families in every mode."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from warpfront_checks.architectures.registered import begin_usual
from warpfront_checks.cases.bounds import Verdict
from warpfront_checks.check_options import STRICT, USUAL, CheckOptions
from warpfront_checks.children import begin_checks, lanes_for
from warpfront_checks.claims import Claims
from warpfront_checks.models.families import FAMILIES, NETWORKS, Family
from warpfront_checks.models.judging import judge_ends, judge_layers, judge_places, judge_training
from warpfront_checks.models.passes import (
    Pass,
    Precision,
    Specimen,
    layers_of,
    make_specimen,
    run_plainly,
    watch,
)
from warpfront_checks.precision import DTYPES, REQUIRED, probe
from warpfront_checks.results import CheckFinding, Checks, Recorder, judged
from warpfront_checks.tolerance_profiles import counted

# torch.compile takes seconds for every model on a GPU, and half a minute where it writes C++.
COMPILED = {
    "cpu": ("gpt",),
    "cuda": ("mlp", "resnet", "gpt", "moe"),
    "hpu": ("gpt",),
    "xpu": ("gpt",),
}
QUICK = {
    "mlp": ("float32",),
    "resnet": ("float32",),
    "gpt": ("float32", "mixed bfloat16", "training"),
}
_SHOWN = 12
# A child starts for half as long as a model is compiled.
_COMPILING_LANES = 2

_BY_NAME = {family.name: family for family in FAMILIES}

# What a test may do to the model that is on the device, to make it compute wrong.
Tamper = Callable[[nn.Module], None]


@dataclass(frozen=True, kw_only=True)
class Proving:
    """The place of a run of models, and the changes to them in it: tests seed faults in it."""

    device: str
    seed: int = 0
    tamper: Tamper = lambda _: None


def record_numerics(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Judge the networks in every dtype that the device must compute, or does."""
    required = REQUIRED[claims.device]
    recorder.plan(["dtypes", *(f"{n.name} {dtype}" for dtype in required for n in NETWORKS)])
    obstacles = _obstacles(claims, recorder)
    tested = [name for name, problem in obstacles.items() if not problem or name in required]
    probes = ", ".join(f"{name} {problem or 'computed'}" for name, problem in obstacles.items())
    broken = [f"{n} is required here: {obstacles[n]}" for n in required if obstacles[n]][:1]
    details = {"probes": probes} if broken else {}
    pairs = [(network, dtype) for dtype in tested for network in NETWORKS]
    networks = _checks(pairs, claims, effort)
    recorder.run({"dtypes": lambda: judged(broken, probes, **details), **networks})


def record_models(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """Judge every family in every mode that the device computes."""
    compiled = compiled_checks(claims, effort)
    required = REQUIRED[claims.device]
    planned = QUICK if effort.quick else _planned(required)
    recorder.plan([f"{family} {mode}" for family, modes in planned.items() for mode in modes])
    tested = [name for name, problem in _obstacles(claims, recorder).items() if not problem]
    planned = QUICK if effort.quick else _planned((*required, *tested))
    pairs = [(_BY_NAME[name], mode) for name, modes in planned.items() for mode in modes]
    recorder.run({**_checks(pairs, claims, effort), **compiled})


def _obstacles(claims: Claims, recorder: Recorder) -> dict[str, str]:
    """Return why each dtype is not computed here, or nothing; the results have it, too."""
    obstacles = {name: probe(dtype, claims.device) for name, dtype in DTYPES.items()}
    recorder.environment["dtypes"] = {k: problem or "computed" for k, problem in obstacles.items()}
    return obstacles


def judge_eager(specimen: Specimen, bench: Proving) -> list[Verdict]:
    """Judge every layer from its own inputs, then logits, loss and gradients from end to end."""
    model, passed = run_eager(specimen, bench)
    parameters = dict(model.named_parameters())
    differs = "the device's copy differs from what was sent"
    changed = [
        Verdict.failed(name, differs, layer="device")
        for name, parameter in specimen.model.named_parameters()
        if not torch.equal(parameters[name].detach().cpu(), parameter.detach())
    ]
    return changed + judge_found(specimen, passed, bench.device)


def run_eager(specimen: Specimen, bench: Proving) -> tuple[nn.Module, Pass]:
    """Return a watched pass on the device, and the model there."""
    model, inputs = specimen.sent(bench.device)
    bench.tamper(model)
    with specimen.precision.autocast(bench.device):
        return model, watch(model, inputs, layers_of(model), specimen.scale)


def judge_found(specimen: Specimen, passed: Pass, device: str) -> list[Verdict]:
    """Judge a pass of any origin as one of the device."""
    rows = judge_places(passed, device)
    rows += judge_layers(layers_of(specimen.model), passed, specimen)
    return rows + judge_ends(passed, specimen)


def judge_mode(family: Family, mode: str, bench: Proving) -> list[Verdict]:
    """Judge a family in a mode: a dtype, `mixed` and one, `training`, or a wrapper."""
    kind, _, name = mode.rpartition(" ")
    mixed, device = kind == "mixed", bench.device
    eager = mode in DTYPES or mixed
    precision = Precision(dtype=DTYPES[name] if eager else torch.float32, mixed=mixed)
    specimen = make_specimen(family, precision, bench.seed)
    if mode == "training":
        return judge_training(specimen, device, bench.tamper)
    if eager:
        return judge_eager(specimen, bench)
    model, inputs = specimen.sent(device)
    bench.tamper(model)
    if mode == "exported":
        run = model = export(model, inputs)
    elif mode == "checkpointed":
        run = run_checkpointed(model)
    else:
        run = run_compiled(model, device)
    passed = run_plainly(run, model, inputs)
    return judge_places(passed, device) + judge_ends(passed, specimen)


def _planned(dtypes: Iterable[str]) -> dict[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(dtypes))
    mixed = tuple(f"mixed {name}" for name in names if name != "float32")
    modes = (*names, *mixed, "training", "checkpointed", "exported")
    return {family.name: modes for family in FAMILIES}


def compiled_checks(claims: Claims, effort: CheckOptions) -> Checks:
    """Return the checks of compiled models; children begin them now, where there are cores for
    them. Without a compiler, as in a runtime image, nothing is claimed.
    """
    if effort.quick:
        return {}
    device = claims.device
    calls = {f"{name} compiled": {"name": name, "device": device} for name in COMPILED[device]}
    if obstacle := missing_compiler(device):
        return dict.fromkeys(calls, f"torch.compile cannot work: {obstacle}")
    lanes = min(lanes_for(device), _COMPILING_LANES)
    return begin_checks("models.modes:find_compiled", calls, effort, lanes=lanes)


def find_compiled(*, name: str, device: str, effort: CheckOptions) -> CheckFinding:
    """The child's side of one of these."""
    rows = judge_mode(_BY_NAME[name], "compiled", Proving(device=device, seed=effort.seeds[0]))
    return finding_of({effort.seeds[0]: rows}, f"{name} compiled on {device}", effort.profile)


def _checks(pairs: Iterable[tuple[Family, str]], claims: Claims, effort: CheckOptions) -> Checks:
    """Return a check for each family and mode."""
    device = claims.device
    benches = [Proving(device=device, seed=seed) for seed in effort.seeds]

    def find(family: Family, mode: str) -> CheckFinding:
        tables = {bench.seed: judge_mode(family, mode, bench) for bench in benches}
        return finding_of(tables, f"{family.name} {mode} on {device}", effort.profile)

    return {f"{family.name} {mode}": partial(find, family, mode) for family, mode in pairs}


def finding_of(tables: dict[int, list[Verdict]], label: str, profile: str = STRICT) -> CheckFinding:
    """The first row over its budget names the layer; details have each layer's largest share."""
    seeded = [(seed, row) for seed, table in tables.items() for row in table]
    used: dict[str, float] = {}
    for _, row in seeded:
        used[row.layer] = max(used.get(row.layer, 0.0), float(f"{row.used:.3g}"))
    over = [(seed, row) for seed, row in seeded if row.fault_by(profile)]
    faults = [f"seed {seed}: {row.fault_by(profile)}" for seed, row in over]
    details: dict[str, object] = {
        "tensors": len(seeded),
        "layers": used,
        "profiles": counted(row.profiles for _, row in seeded),
        "faults": faults[:_SHOWN],
        "faults_in_all": len(faults),
    }
    if over:
        details["first_over"] = over[0][1].layer
        describe = next((row.describe for _, row in over if row.describe), dict)
        details |= describe()
        faults[0] = f"{label}, {faults[0]}"
    return judged(faults, f"largest share of a budget {max(used.values()):.2f}", **details)


def record_model_session(claims: Claims, recorder: Recorder, effort: CheckOptions = USUAL) -> None:
    """A child imports the library for longer than a family takes. A Gaudi belongs to the process
    that used it first, until that ends: there the children come before.
    """
    checks, wait = begin_usual(claims, recorder, effort)
    recorder.plan([*checks])
    first = claims.device == "hpu"
    if not first:
        record_models(claims, recorder, effort)
    recorder.run(checks)
    wait()
    if first:
        record_models(claims, recorder, effort)


Run = Callable[..., tuple[Tensor, Tensor]]

# Who compiles where Inductor does not.
BACKENDS = {"hpu": "hpu_backend"}


def agree_on_precision() -> None:
    """Give the old switch for TF32 convolutions the new ones' value: `torch.export` reads the old
    one, and torch refuses to answer while they differ.
    """
    conv: Any = getattr(torch.backends.cudnn, "conv", None)
    if getattr(conv, "fp32_precision", "") == "ieee":
        # Who has loaded torch's operator database may not set the switch by its public name.
        torch._C._set_cudnn_allow_tf32(False)  # noqa: SLF001, FBT003
        conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "ieee"


def run_checkpointed(model: nn.Module) -> Run:
    """Run a model that repeats its forward pass during the backward pass, from the inputs alone."""

    def run(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        logits = checkpoint(model.body, *inputs[:-1], use_reentrant=False)
        return logits, model.loss(logits, inputs[-1])

    return run


def export(model: nn.Module, inputs: tuple[Tensor, ...]) -> nn.Module:
    """Return the graph that `torch.export` finds, as a module with the model's parameter names."""
    agree_on_precision()
    exported: Any = torch.export.export(model, inputs, strict=False)
    module: nn.Module = exported.module()
    return module


def run_compiled(model: nn.Module, device: str, *, whole: bool = True) -> Run:
    """`torch.compile` in its default mode: the others may use graph capture, which is no
    question of numerics. `whole` allows no break of the graph.
    """
    torch.compiler.reset()
    try_widest_alone()
    backend = BACKENDS.get(device, "inductor")
    compiled: Run = torch.compile(model, fullgraph=whole, dynamic=False, backend=backend)
    return compiled


def try_widest_alone() -> None:
    """Let Inductor try the widest vectors of the processor alone. It uses the first ones that it
    can build, after it has built and loaded libraries for all.
    """
    with contextlib.suppress(Exception):  # of another torch or processor, it tries all of them
        isa: Any = importlib.import_module("torch._inductor.cpu_vec_isa")
        flags = isa.x86_isa_checker()
        widest = next(x for x in isa.supported_vec_isa_list if {*str(x).split()} <= {*flags})
        isa.config.cpp.vec_isa_ok = bool(widest) or None


def missing_compiler(device: str) -> str:
    """Why `torch.compile` cannot work here, or nothing. Inductor writes C++ for the CPU and Triton
    for GPUs, and Triton builds its launcher with a C compiler; Gaudi's is registered by its bridge.
    """
    if device in BACKENDS:
        backends = torch.compiler.list_backends(exclude_tags=())
        return "" if BACKENDS[device] in backends else f"there is no {BACKENDS[device]}"
    names = ("CXX", "g++", "c++", "clang++") if device == "cpu" else ("CC", "gcc", "cc", "clang")
    if not (os.environ.get(names[0]) or any(map(shutil.which, names[1:]))):
        return f"no {'C++' if device == 'cpu' else 'C'} compiler in this image"
    lacking = device != "cpu" and importlib.util.find_spec("triton") is None
    return "triton is not installed" if lacking else ""
