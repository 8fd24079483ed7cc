"""Uses of a model beyond one pass: training, generating, spreading over devices, each attention
of the library, compiling. Each is judged against float64 on the CPU.
"""

from __future__ import annotations

import contextlib
import copy
import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from warpfront_checks.architectures.architecture_runs import FedModel
from warpfront_checks.architectures.feeding import Feed
from warpfront_checks.architectures.float64_mode import float64_region
from warpfront_checks.cases.bounds import Verdict, rounding_unit
from warpfront_checks.cases.measured import Limits
from warpfront_checks.models.replaying import first_over, judge_ends
from warpfront_checks.models.training import judge_training
from warpfront_checks.models.watching import run_plainly
from warpfront_checks.results import CheckFinding, failed, passed, unavailable

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
    return failed(fault, first_over=first.layer, **details)


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
    generated = _generated(model, {name: value.to(device) for name, value in feed.items()})
    tokens = generated.sequences.cpu()
    steps = torch.stack([step.detach().cpu().double() for step in generated.logits], dim=1)
    exact, same = (_read_at_once(body, feed, tokens, dtype) for dtype in _BOTH)
    return _compared(tokens[:, -steps.shape[1] :], steps, exact, same, generated.logits[0].dtype)


def _generated(model: Any, feed: Feed) -> Any:
    config = model.generation_config
    config.eos_token_id = config.forced_eos_token_id = None
    for name in ("pad_token_id", "decoder_start_token_id"):
        if getattr(config, name, None) is None:
            setattr(config, name, 0)
    with torch.no_grad():
        return model.generate(
            **feed,
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            output_logits=True,
            return_dict_in_generate=True,
        )


def _read_at_once(body: Any, feed: Feed, tokens: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the logits from which each new token was taken, by one pass on the CPU."""
    body_copy = copy.deepcopy(body)
    arguments = dict(feed)
    name = "decoder_input_ids" if body_copy.config.is_encoder_decoder else "input_ids"
    arguments[name] = tokens[:, :-1]
    body_copy = body_copy.to(dtype)
    arguments = {k: v.to(dtype) if v.is_floating_point() else v for k, v in arguments.items()}
    region = float64_region() if dtype == torch.float64 else contextlib.nullcontext()
    with torch.no_grad(), region:
        logits: Tensor = body_copy(**arguments, use_cache=False).logits
    return logits[:, -NEW_TOKENS:].double()


def _compared(
    tokens: Tensor, steps: Tensor, exact: Tensor, same: Tensor, dtype: torch.dtype
) -> CheckFinding:
    if steps.shape != exact.shape:
        reason = f"logits of shape {tuple(steps.shape)}, by one pass {tuple(exact.shape)}"
        return failed(reason)
    limits = Limits.by_cpu(steps.to(dtype), exact, same, dtype, most=math.inf)
    off = limits.bound.rms * _OTHER_ORDER
    share = _rms(steps - exact) / off
    gaps = exact.amax(-1) - exact.gather(-1, tokens[..., None])[..., 0]
    allowed = 2 * off * math.sqrt(exact.shape[-1])
    details = {"largest_share": float(f"{share:.3g}"), "tokens": tokens.tolist()}
    if not share <= 1:
        reason = f"logits of cached steps are {share:.3g} of what rounding allows"
        return failed(reason, **details)
    if float(gaps.max()) > allowed:
        reason = f"a token whose logit is {float(gaps.max()):.3g} below the largest"
        return failed(reason, **details)
    return passed(**details)


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def spread(fed_model: FedModel, device: str) -> CheckFinding:
    """Saved, and loaded with `device_map="auto"` in one place, and then in two: devices, else the
    device and the host, or the host and the disk.
    """
    if find_spec("accelerate") is None:
        return unavailable("accelerate is not installed")
    body: Any = fed_model.specimen.model.body
    reference = _answer(fed_model, copy.deepcopy(body).to(device), device)
    half, several = (
        2 * fed_model.built.parameters,
        device == "cuda" and torch.cuda.device_count() > 1,
    )
    memory = {"cpu": half} if device == "cpu" else {0: half, 1 if several else "cpu": 8 * half}
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
            row = _same_answer(_answer(fed_model, model, device), reference, count)
            if row:
                return failed(row, **details)
    return passed(**details)


def _answer(fed_model: FedModel, model: Any, device: str) -> Tensor:
    from warpfront_checks.architectures.watched import floating  # noqa: PLC0415

    names = fed_model.specimen.model.names
    with torch.no_grad():
        feed = {n: x.to(device) for n, x in zip(names, fed_model.specimen.inputs, strict=True)}
        return torch.cat([tensor.flatten().cpu() for tensor in floating(model(**feed))])


def _same_answer(answer: Tensor, reference: Tensor, count: int) -> str:
    if answer.shape != reference.shape:
        return f"in {count} places: {tuple(answer.shape)} numbers, in one {tuple(reference.shape)}"
    wide, exact = answer.double(), reference.double()
    off = _rms((wide - exact).nan_to_num()) / max(_rms(exact.nan_to_num()), 1e-30)
    allowed = _OTHER_PLACES * rounding_unit(reference.dtype)
    if not off <= allowed:
        return f"in {count} places: off by {off:.3g} of the answer ({allowed:.3g} allowed)"
    return ""


def attend(fed_model: FedModel, device: str) -> CheckFinding:
    """Run each implementation of attention: computed, refused with a reason, or wrong."""
    problems: dict[str, str] = {}
    wrong = ""
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
        wrong = wrong or (f"{name}: {row.fault_by()}" if row else "")
    if wrong:
        return failed(wrong, attention=problems)
    if "computed" not in problems.values():
        return unavailable("no implementation is taken", attention=problems)
    return passed(attention=problems)


def compiled(fed_model: FedModel, device: str) -> CheckFinding:
    """Run with `torch.compile`, with any graph breaks of the library's code."""
    from warpfront_checks.models.modes import (  # noqa: PLC0415
        missing_compiler,
        run_compiled,
    )

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
