"""An architecture in a child: built small with random weights, fed, and judged layer by layer and
from end to end. Then its uses: training, generating, spreading over devices, each attention of the
library, and compiling.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from warpfront_checks.architectures.feeding import Feed, feeds
from warpfront_checks.architectures.roster import Architecture
from warpfront_checks.architectures.shrinking import MANNERS, Manner, small_values
from warpfront_checks.architectures.watched import (
    Answering,
    Layers,
    float64_region,
    floating,
    observed_layers,
)
from warpfront_checks.cases.bounds import Bound, Verdict, judge, rounding_unit
from warpfront_checks.cases.measured import Limits
from warpfront_checks.cases.rounding import rms_of
from warpfront_checks.documents import packaged
from warpfront_checks.models.judging import (
    first_line,
    first_over,
    judge_ends,
    judge_layers,
    judge_places,
    judge_training,
)
from warpfront_checks.models.passes import Precision, Specimen, run_plainly, watch
from warpfront_checks.precision import DTYPES
from warpfront_checks.results import (
    ERROR,
    FAILED,
    UNAVAILABLE,
    CheckFinding,
    failed,
    finding_from,
    judged,
    passed,
    unavailable,
)

# Larger than this, a model was not made small.
MOST_PARAMETERS = 30_000_000
# What a library adds to weights that it begins at 0 or 1, so that no branch is closed by its gate.
_STIRRED = 0.1


class NotBuiltError(Exception):
    """No way of making it small gave a model; the message has each one's reason."""


def exceptions() -> Mapping[str, Any]:
    """Return the data file: values by type, exclusions with reasons, and how many have to run."""
    return packaged("architectures/exceptions.json")


def build(architecture: Architecture, manner: Manner, seed: int) -> tuple[nn.Module, Any, int]:
    """Return a model made small in a manner, on the CPU in float32, with its configuration and the
    number of its parameters. Raise whatever the library refuses the sizes with.
    """
    library: Any = importlib.import_module("transformers")
    model_class = getattr(library, architecture.model)
    config = small_config(architecture, model_class, manner)
    with torch.device("meta"):
        parameters = sum(p.numel() for p in model_class(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise NotBuiltError(f"{parameters:,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: nn.Module = model_class(config)
        with torch.no_grad():
            for parameter in model.parameters():
                # Zeros and ones that a library begins with would hide what is behind them.
                flat = parameter.is_floating_point() and parameter.numel() > 1
                if flat and float(parameter.std()) == 0.0:
                    parameter.add_(torch.randn_like(parameter), alpha=_STIRRED)
    return model.float().eval(), config, parameters


def small_config(architecture: Architecture, model_class: Any, manner: Manner) -> Any:
    """Return the configuration that the class takes, which may be a part of its type's."""
    automatic: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    config_class = automatic.CONFIG_MAPPING[architecture.name]
    config_classes = getattr(model_class, "config_class", None)
    # Arguments of its default configuration, and changes to the small one.
    entries = (entry for entry in exceptions()["values"] if entry["name"] == architecture.name)
    entry: Mapping[str, Any] = next(entries, {})
    arguments, changed = entry.get("default", {}), entry.get("values", {})
    try:
        default = config_class(**arguments)
    except Exception:  # whatever a library refuses with
        # A composite has no default of its own: the configuration of the class is one of its parts.
        if config_classes in (None, config_class):
            raise
        config_class, default = config_classes, config_classes()
    small = small_values(default, manner)
    values = _merged(_merged(arguments, small), changed)
    if architecture.kind == "causal" and not values.get("is_encoder_decoder"):
        values["is_decoder"] = True
    config = config_class(**values)
    if config_classes is None or isinstance(config, config_classes):
        return config
    parts = [part for part in vars(config).values() if isinstance(part, config_classes)]
    return parts[0] if parts else config


def _merged(values: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, value in changed.items():
        current = merged.get(name)
        if isinstance(current, dict) and isinstance(value, Mapping) and value:
            value = _merged(current, value)  # noqa: PLW2901 - both have parts
        merged[name] = value
    return merged


NEW_TOKENS = 4
_BOTH = (torch.float64, torch.float32)
IMPLEMENTATIONS = ("eager", "sdpa", "flash_attention_2", "flex_attention")
# A cache changes the order in which numbers are added, and nothing else.
_OTHER_ORDER = 4.0
# In roundings, of an answer that is computed in two places.
_OTHER_PLACES = 512.0


def _of_rows(rows: list[Verdict], **details: Any) -> CheckFinding:
    first = first_over(rows)
    details["largest_share"] = float(f"{max((row.used for row in rows), default=0.0):.3g}")
    if first is None:
        return passed(**details)
    fault = first.fault_by().replace("body.", "")
    details |= first.describe() if first.describe else {}
    return failed(fault, first_over=first.layer.removeprefix("body."), **details)


def train(fed_model: FedModel, device: str) -> CheckFinding:
    """Steps of AdamW, in the model's own training mode where that draws no numbers."""
    specimen_fed = fed_model.specimen
    if fed_model.layers.random:
        return unavailable("the model draws random numbers")
    model = copy.deepcopy(specimen_fed.model).train()
    before = torch.get_rng_state()
    model(*specimen_fed.inputs)
    is_random = not torch.equal(before, torch.get_rng_state())
    specimen = replace(specimen_fed, model=model.eval() if is_random else model)
    rows = judge_training(specimen, device, lambda _: None)
    return _of_rows(rows, mode="evaluation" if is_random else "training")


def generate(fed_model: FedModel, device: str) -> CheckFinding:
    """Greedy tokens with a cache, against one pass over the whole text without."""
    body: Any = fed_model.specimen.model.body
    can = getattr(body, "can_generate", None)
    if not (can and can() and hasattr(body, "generate")):
        return unavailable("the class does not generate")
    feed = dict(zip(fed_model.specimen.model.names, fed_model.specimen.inputs, strict=True))
    feed.pop("decoder_input_ids", None)
    model: Any = copy.deepcopy(body).to(device).eval()
    config = model.generation_config
    config.eos_token_id = config.forced_eos_token_id = None
    for name in ("pad_token_id", "decoder_start_token_id"):
        if getattr(config, name, None) is None:
            setattr(config, name, 0)
    with torch.no_grad():
        generated = model.generate(
            **{name: value.to(device) for name, value in feed.items()},
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            output_logits=True,
            return_dict_in_generate=True,
        )
    tokens = generated.sequences.cpu()
    steps = torch.stack([step.detach().cpu().double() for step in generated.logits], dim=1)
    exact, same = (_read_at_once(body, feed, tokens, dtype) for dtype in _BOTH)
    if steps.shape != exact.shape:
        reason = f"logits of shape {tuple(steps.shape)}, by one pass {tuple(exact.shape)}"
        return failed(reason)
    dtype, new = generated.logits[0].dtype, tokens[:, -steps.shape[1] :]
    limits = Limits.by_cpu(steps.to(dtype), exact, same, dtype, most=math.inf)
    off = limits.bound.rms * _OTHER_ORDER
    verdict = judge(steps, exact, Bound(slack=math.inf, rms=off))
    gaps = exact.amax(-1) - exact.gather(-1, new[..., None])[..., 0]
    wrong = []
    if verdict.fault:
        wrong.append(f"logits of cached steps are {verdict.rms:.3g} of what rounding allows")
    elif float(gaps.max()) > 2 * off * math.sqrt(exact.shape[-1]):
        wrong.append(f"a token whose logit is {float(gaps.max()):.3g} below the largest")
    return judged(wrong, largest_share=float(f"{verdict.rms:.3g}"), tokens=new.tolist())


def _read_at_once(body: Any, feed: Feed, tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the logits from which each new token was taken, by one pass on the CPU."""
    name = "decoder_input_ids" if body.config.is_encoder_decoder else "input_ids"
    arguments = {k: v.to(dtype) if v.is_floating_point() else v for k, v in feed.items()}
    arguments[name] = tokens[:, :-1]
    region = float64_region() if dtype == torch.float64 else contextlib.nullcontext()
    with torch.no_grad(), region:
        answer = copy.deepcopy(body).to(dtype)(**arguments, use_cache=False)
    logits: Tensor = answer.logits[:, -NEW_TOKENS:].double()
    return logits


def spread(fed_model: FedModel, device: str) -> CheckFinding:
    """Saved, and loaded with `device_map="auto"` in one place, and then in two: devices, else the
    device and the host, or the host and the disk.
    """
    if find_spec("accelerate") is None:
        return unavailable("accelerate is not installed")
    body: Any = fed_model.specimen.model.body
    reference = _answer(fed_model, copy.deepcopy(body).to(device), device)
    exact, half = reference.double(), 2 * fed_model.parameters
    several = device == "cuda" and torch.cuda.device_count() > 1
    memory = {"cpu": half} if device == "cpu" else {0: half, 1 if several else "cpu": 8 * half}
    off = _OTHER_PLACES * rounding_unit(reference.dtype) * rms_of(exact.nan_to_num())
    bound = Bound(slack=math.inf, rms=off)
    details: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        body.save_pretrained(name)
        for count in (1, 2):
            options = {"device_map": "auto", "local_files_only": True, "dtype": torch.float32}
            if count == 2:
                options |= {"max_memory": memory, "offload_folder": f"{name}/offload"}
            model = type(body).from_pretrained(name, **options).eval()
            spread_over = getattr(model, "hf_device_map", None) or {"": device}
            places = sorted({str(place) for place in spread_over.values()})
            details[f"places {count}"] = places
            if len(places) < count:
                details[f"places {count}"] = f"the library keeps it in one: {', '.join(places)}"
            answer = _answer(fed_model, model, device)
            if fault := judge(answer.double(), exact, bound).fault:
                return failed(f"in {count} places: {fault}", **details)
    return passed(**details)


def _answer(fed_model: FedModel, model: Any, device: str) -> Tensor:
    names = fed_model.specimen.model.names
    with torch.no_grad():
        feed = {n: x.to(device) for n, x in zip(names, fed_model.specimen.inputs, strict=True)}
        return torch.cat([tensor.flatten().cpu() for tensor in floating(model(**feed))])


def attend(fed_model: FedModel, device: str) -> CheckFinding:
    """Run each implementation of attention: computed, refused with a reason, or wrong."""
    problems: dict[str, str] = {}
    wrong = []
    for name in IMPLEMENTATIONS:
        if name == "flex_attention" and device == "cpu":
            problems[name] = "not tried: no backward pass on the CPU, and a minute's compiling"
            continue
        model, inputs = fed_model.specimen.sent(device)
        try:
            model.body.set_attn_implementation(name)
            run = run_plainly(model, model, inputs)
        except Exception as error:  # noqa: BLE001 - a refusal is an answer here, by its own words
            problems[name] = f"refused: {' '.join(str(error).split())[:160]}"
            continue
        row = first_over(judge_ends(run, fed_model.specimen))
        problems[name] = row.fault_by() if row else "computed"
        wrong += [f"{name}: {row.fault_by()}"] if row else []
    if not wrong and "computed" not in problems.values():
        return unavailable("no implementation is taken", attention=problems)
    return judged(wrong[:1], attention=problems)


def compiled(fed_model: FedModel, device: str) -> CheckFinding:
    """Run with `torch.compile`, with any graph breaks of the library's code."""
    from warpfront_checks.models.modes import missing_compiler, run_compiled  # noqa: PLC0415

    if obstacle := missing_compiler(device):
        return unavailable(f"torch.compile cannot work: {obstacle}")
    model, inputs = fed_model.specimen.sent(device)
    run = run_plainly(run_compiled(model, device, whole=False), model, inputs)
    return _of_rows(judge_ends(run, fed_model.specimen))


USES: Mapping[str, Callable[[FedModel, str], CheckFinding]] = {
    "training": train,
    "generate": generate,
    "device_map": spread,
    "attention": attend,
    "compiled": compiled,
}


_REASONS = 3


@dataclass(frozen=True, kw_only=True)
class FedModel:
    """An architecture that the CPU can run: model, inputs, and which layers can be judged."""

    architecture: Architecture
    manner: str
    parameters: int
    specimen: Specimen
    layers: Layers


def prepare(architecture: Architecture, seed: int, patience: float = 60.0) -> FedModel:
    """Return the first small model and the first inputs that the CPU computes forward and backward.

    Raises `NotBuiltError` with the library's messages on the others.
    """
    refusals: dict[str, None] = {}
    # Processor seconds: wall time on a loaded machine does not measure a model.
    until = time.process_time() + patience
    for manner in MANNERS:
        try:
            body, config, parameters = build(architecture, manner, seed)
        except Exception as error:  # noqa: BLE001 - any refusal; the next manner is tried
            refusals[first_line(error)] = None
            continue
        for feed in feeds(body, config, seed):
            if time.process_time() > until:
                raise NotBuiltError(f"nothing ran in {patience:g} s: {'; '.join(refusals)}")
            try:
                model, inputs = Answering(body, tuple(feed)), tuple(feed.values())
                _, loss = model(*inputs)
                loss.backward()
                model.zero_grad(set_to_none=True)
                precision = Precision(dtype=torch.float32)
                return FedModel(
                    architecture=architecture,
                    manner=manner.name,
                    parameters=parameters,
                    specimen=Specimen(
                        model=model, inputs=inputs, precision=precision, wide=float64_region
                    ),
                    layers=observed_layers(model, inputs),
                )
            except Exception as error:  # noqa: BLE001 - any refusal; the next inputs are tried
                refusals[first_line(error)] = None
    last = "; ".join(list(refusals)[:_REASONS]) or "the class takes nothing that is known here"
    raise NotBuiltError(last)


def judge_pass(
    fed_model: FedModel, device: str, dtype: torch.dtype = torch.float32
) -> CheckFinding:
    """Forward and backward: every layer from its own inputs, then from end to end. `left_out` has
    why a layer was not judged.
    """
    specimen, observed = fed_model.specimen, fed_model.layers
    unclear: set[str] = set()
    if dtype != torch.float32:
        # The same model and inputs, rounded to what is sent; a choice may fall either way.
        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in specimen.inputs)
        model = copy.deepcopy(specimen.model).to(dtype)
        precision = Precision(dtype=dtype)
        specimen = replace(specimen, model=model, inputs=inputs, precision=precision)
        unclear = observed.choosing
    model, inputs = specimen.sent(device)
    names = [name for name in observed.judged if name not in unclear]
    modules, references = (dict(each.named_modules()) for each in (model, specimen.model))
    passed = watch(model, inputs, {name: modules[name] for name in names}, specimen.scale)
    left_out = dict(observed.refused)

    def keeps(layer: str, tensor: str) -> bool:
        # Weights of what was chosen add up to one: of such a sum little but rounding comes back.
        given_up = layer in observed.choosing
        given_up = given_up or observed.is_lent(layer, tensor.removeprefix("gradient of "))
        return tensor == "output" or not given_up

    layers = {name: references[name] for name in names}
    rows = judge_layers(layers, passed, specimen, keeps=keeps, left_out=left_out)
    count, whole = sum(row.name == "output" for row in rows), ""
    rows = judge_places(passed, device) + rows
    if observed.random:
        whole = "the model draws random numbers"
    elif unclear:
        whole = "the model chooses by number"
    else:
        try:
            _ = specimen.exact, specimen.same_dtype
        except Exception as error:  # noqa: BLE001 - a model's refusal of float64 is reported
            whole = f"not computed in float64: {first_line(error)}"
        else:
            rows += judge_ends(passed, specimen)
    parameters = [name for name, each in model.named_parameters() if each.requires_grad]
    unused = [name for name in parameters if name not in passed.gradients]
    finding = _of_rows(
        rows,
        manner=fed_model.manner,
        model=fed_model.architecture.model,
        parameters=fed_model.parameters,
        fed={name: list(x.shape) for name, x in zip(model.names, inputs, strict=True)},
        unused=[name.removeprefix("body.") for name in unused],
        left_out={name.removeprefix("body."): why for name, why in left_out.items()},
        layers=count,
        tensors=len(rows),
        whole_left_out=whole,
    )
    if whole and not count:
        return unavailable(f"nothing could be judged: {whole}", **finding.details)
    return finding


# Nothing is fetched, and a library's progress bars are for people.
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}


def try_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the finding of one architecture, with an outcome for each mode."""
    warnings.simplefilter("ignore")
    start = time.monotonic()
    try:
        prepared_model = prepare(item["architecture"], item["seed"], item["patience"])
    except NotBuiltError as error:
        return vars(unavailable(str(error), modes={}))
    prepared = round(time.monotonic() - start, 3)
    modes: dict[str, dict[str, Any]] = {}
    for mode in item["modes"]:
        start = time.monotonic()
        try:
            if mode in DTYPES:
                finding = judge_pass(prepared_model, item["device"], DTYPES[mode])
            else:
                finding = USES[mode](prepared_model, item["device"])
        except Exception as error:  # noqa: BLE001 - what a model raises in one mode is that mode's result
            finding = CheckFinding(outcome=ERROR, reason=finding_from(error).reason)
        result = {"outcome": finding.outcome, "reason": finding.reason, **finding.details}
        modes[mode] = {**result, "seconds": round(time.monotonic() - start, 3)}
    details = {"modes": modes, "prepared_seconds": prepared}
    # The worst of the modes, and its reason with its mode's name.
    for worst in (ERROR, FAILED, UNAVAILABLE):
        for mode, result in modes.items():
            # What a class does not do, generating say, is no fault of the device's.
            if result["outcome"] == worst and not (worst == UNAVAILABLE and mode in USES):
                reason = f"{mode}: {result['reason']}"
                return {"outcome": worst, "reason": reason, "details": details}
    first: Mapping[str, Any] = next((m for m in modes.values() if "layers" in m), {})
    unused = first.get("unused", [])
    more = f"; {len(unused)} parameters unused: {unused[0]} ..." if unused else ""
    return vars(passed(f"{first.get('layers', 0)} layers judged{more}", **details))
