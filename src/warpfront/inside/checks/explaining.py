"""A failure as a script of its own: torch and numpy, and those definitions of the checks that the
case needs, by name, from their sources; inputs come from the seed that the failure names.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

CHECKS = Path(__file__).parent
PACKAGE = "warpfront.inside.checks"
# Read from files beside the sources, which a script does not have; profiles are no part of a case.
STAND_INS = {"tolerances": "def tolerances():\n    return {}"}
_OPERATOR = re.compile(r"^(?P<dtype>\w+), (?P<case>.+), seed (?P<seed>\d+): ")
_ROW = re.compile(r"^(?P<case>.+), (?P<dtype>\w+), seed (?P<seed>\d+): ")
_SAMPLE = re.compile(r"^(?P<case>.+), sample (?P<sample>\d+), seed (?P<seed>\d+): ")
_SEED = re.compile(r"seed (?P<seed>\d+)")
_GOLDEN = re.compile(r"^[^:]+: (?P<case>.+) (?P<dtype>\w+)$")
_DEVICE = re.compile(
    r"^(?P<place>\w+(:\d+)?): (?P<case>.+) (?P<dtype>\w+) (out|grad/\d+): [\d.e+]+ times"
)
_WAY = re.compile(
    r"^(?P<dtype>\w+) width (?P<width>\d+), (?P<mask>\w+), (?P<heads>grouped|equal heads),"
    r" (?P<way>\w+): wrong"
)


class UnexplainedError(Exception):
    """There is no such failure, or none that a script could repeat; the message says which."""


@dataclass(frozen=True, kw_only=True)
class Root:
    """What a script does, and the definitions it begins with: (module below checks, name)."""

    wanted: tuple[tuple[str, str], ...]
    body: str


def explained(result: Path, check: str) -> str:
    """The script that repeats the first failure of a check. Raises `UnexplainedError`."""
    document = json.loads(result.read_text(encoding="utf-8"))
    found = [one for one in document.get("checks", ()) if one["name"] == check]
    if not found:
        names = ", ".join(one["name"] for one in document.get("checks", ())) or "none"
        raise UnexplainedError(f"{result} has no check {check!r}\nhint: it has {names}")
    if found[0]["outcome"] != "failed":
        raise UnexplainedError(f"{check} is {found[0]['outcome']}: no case of it failed")
    told = found[0]["details"]
    faults = told.get("faults") or told.get("bad") or [found[0].get("reason", "")]
    device = document["environment"].get("device") or _device(document)
    effort = document["environment"].get("effort", {})
    root = _root(document["session"], check, str(faults[0]), device)
    quick, seed = bool(effort.get("quick")), next(iter(effort.get("drawn", ())), 0)
    said = f'"""{check}: {faults[0]}"""'.replace("\\", "/")
    body = root.body.replace("QUICK", repr(quick)).replace("DRAWN", repr(seed))
    return "\n\n".join([said, *Shaken().script(root.wanted), body]) + "\n"


def _device(document: Mapping[str, Any]) -> str:
    target = str(document.get("target", "cpu"))
    if target in {"cpu", document["environment"].get("machine")}:
        return "cpu"
    known = {"sm_": "cuda", "gfx": "cuda", "gaudi": "hpu"}
    return next((name for begins, name in known.items() if target.startswith(begins)), "xpu")


def _root(session: str, check: str, fault: str, device: str) -> Root:
    home = _class_of(check) if session == "operators" else None
    if home and (match := _ROW.match(fault)):
        return _row_root(home, match, device)
    if session == "operators" and (match := _OPERATOR.match(fault)):
        return _operator_root(check, match, device)
    if session == "opinfo" and (match := _SAMPLE.match(fault)):
        return _sample_root(check, match, device)
    if session in {"models", "numerics"} and (match := _SEED.match(fault)):
        return _network_root(session, check, int(match["seed"]), device)
    return _tensors_root(session, check, fault, device)


def _tensors_root(session: str, check: str, fault: str, device: str) -> Root:
    if session == "golden" and " this device is off" in fault and (match := _GOLDEN.match(check)):
        return _golden_root(match, device, "[*BY_NAME].index(name)")
    if session == "devices" and (match := _DEVICE.match(fault)):
        return _golden_root(match, match["place"], "SEED")
    if session == "attention" and (match := _WAY.match(fault)):
        return _attention_root(check.removeprefix("tier "), match, device)
    raise UnexplainedError(f"{session}: {check}: no script repeats {fault.partition(':')[0]!r}")


def _operator_root(check: str, match: re.Match[str], device: str) -> Root:
    home = _home_of(check)
    wanted = [("operators.cases", n) for n in ("make_maker", "execute_case")]
    wanted += [("operators.verdicts", n) for n in ("expect", "_pairs", "_alone", "_judge_tensor")]
    if home is None:
        wanted.append(("operators.fused", "pattern_cases"))
        cases = f"pattern_cases({check!r}, maker)"
    else:
        wanted.append(home)
        cases = f"{home[1]}.cases[{check!r}](maker)"
    body = f"""
dtype, device, seed = torch.{match["dtype"]}, {device!r}, {match["seed"]}
maker = make_maker(dtype, seed, quick=QUICK)
case = next(case for case in {cases} if case.name == {match["case"]!r})
expected = expect(case, dtype, device, seed)
found = execute_case(case, expected.cotangent, device)
alone = _alone(case, dtype, device)
for name, x, budgeted, cpu in _pairs(found, expected, alone=alone):
    share, ratio, faults = _judge_tensor(name, x, budgeted, cpu, dtype)
    print(name, "share of the bound", share, "RMS ratio", ratio, *faults, sep="; ")
    print("  reference", budgeted.reference.flatten()[:5], "bound", budgeted.bound.flatten()[:5])
    if faults:
        failed = True
"""
    return Root(wanted=tuple(wanted), body="failed = False" + body + "print('failed:', failed)")


def _row_root(home: tuple[str, str], match: re.Match[str], device: str) -> Root:
    module, table = home
    body = f"""
seed = {match["seed"]}
row = next(row for row in {table}.hazards if row.name == {match["case"]!r})
generator = torch.Generator().manual_seed(seed)
ground = Ground({device!r}, torch.{match["dtype"]}, seed, generator, quick=QUICK)
for answer in row.answers(ground):
    fault, share = answer_fault(answer)
    if fault:
        failed = True
        print(fault, "; allowed", answer.ulps, "units in the last place and", answer.slack)
"""
    names = ("Ground", "answer_fault")
    wanted = ((module, table), *(("hazards.answers", name) for name in names))
    body = body.replace("Ground(", "Ground(device=", 1).replace(", torch.", ", dtype=torch.", 1)
    body = body.replace(", seed, generator, quick", ", seed=seed, generator=generator, quick")
    return Root(wanted=wanted, body="failed = False" + body + "print('failed:', failed)")


def _sample_root(check: str, match: re.Match[str], device: str) -> Root:
    dtype, _, how = check.partition(" ")
    body = f"""
backward, seed = {how == "backward"}, {match["seed"]}
entry = next(entry for entry in load_database() if entry.name == {match["case"]!r})
samples = samples_for(entry, torch.{dtype}, device={device!r}, how={how!r}, quick=QUICK)
sample = list(samples)[{match["sample"]}]
expected = expect_sample(entry, sample, torch.{dtype}, seed, backward=backward)
failed = False
for asked in asked_as(entry, sample, {match["sample"]}, torch.{dtype}):
    found = execute_entry(entry, asked, expected.cotangents, {device!r})
    verdict = expected.judge(found, {device!r})
    failed = failed or bool(verdict.faults)
    print("RMS ratio", verdict.rms_ratio, "element", verdict.budget_used, *verdict.faults, sep="; ")
print('failed:', failed)
"""
    sweep = ("asked_as", "samples_for")
    wanted = (*(("opinfo.sweep", name) for name in sweep), ("opinfo.adapter", "load_database"))
    wanted += (("opinfo.expecting", "expect_sample"),)
    wanted += (("opinfo.entry_verdicts", "execute_entry"), ("precision", "require_full_precision"))
    return Root(wanted=wanted, body="require_full_precision()" + body)


def _network_root(session: str, check: str, seed: int, device: str) -> Root:
    family, _, mode = check.partition(" ")
    table = "NETWORKS" if session == "numerics" else "FAMILIES"
    body = f"""
family = next(family for family in {table} if family.name == {family!r})
rows = judge_mode(family, {mode!r}, Proving(device={device!r}, seed={seed}))
print(*(row.fault for row in rows if row.fault), sep="\\n")
print('failed:', any(row.fault for row in rows))
"""
    wanted = [("models.families", table)]
    wanted += [("models.modes", name) for name in ("judge_mode", "Proving")]
    own = (*wanted, ("precision", "require_full_precision"))
    return Root(wanted=own, body="require_full_precision()" + body)


def _golden_root(match: re.Match[str], place: str, seed: str) -> Root:
    """A case of the golden suite; its inputs are made by its own number, or that of `devices`."""
    body = f"""
name, dtype, place = {match["case"]!r}, torch.{match["dtype"]}, {place!r}
case, seed, failed = BY_NAME[name], {seed}, False
inputs, cotangent = case.make(dtype, seed)
budgets = case.expect(inputs, cotangent, torch.device(place).type)
for part, x in compute(case.operation, inputs, cotangent, place).items():
    share, fault = element_fault(part, x.detach().cpu().double(), budgets[part])
    failed = failed or bool(fault)
    print(part, "share of the bound", share, fault, sep="; ")
print('failed:', failed)
"""
    wanted = [("golden.suite", "BY_NAME"), ("golden.suite", "compute"), ("judge", "element_fault")]
    wanted += [("precision", "require_full_precision")]
    wanted += [("devices.roll_call", "SEED")] if seed == "SEED" else []
    return Root(wanted=tuple(wanted), body="require_full_precision()" + body)


def _attention_root(tier: str, match: re.Match[str], device: str) -> Root:
    asked = {key: match[key] for key in ("dtype", "mask")} | {"width": int(match["width"])}
    asked |= {"device": device, "backward": match["way"] == "backward"}
    heads = "GROUPED" if match["heads"] == "grouped" else "HEADS"
    body = f"""
item = {{**{asked!r}, "batch": BATCH, "heads": HEADS, "grouped": {heads}}}
own = _CaseInputs({{**item, "length": LENGTHS[{device!r}], "seed": DRAWN}})
how = Arithmetic(dtype=own.dtype, device=own.device)
inputs, failed = [x.double() for x in own.tensors], False
budgets = expected(inputs, own.cotangent.double(), own.allowed, how)
for name, x, budgeted in zip(("output", "q", "k", "v"), own.run({_way(tier)}), budgets):
    share, fault = element_fault(name, x.detach().cpu().double(), budgeted)
    failed = failed or bool(fault)
    print(name, "share of the bound", share, fault, sep="; ")
print('failed:', failed)
"""
    wanted = [("attention.tier_session", n) for n in ("BATCH", "HEADS", "GROUPED", "LENGTHS")]
    wanted += [("attention.at_tier", name) for name in ("_CaseInputs", "expected")]
    wanted += [("operations", "Arithmetic"), ("judge", "element_fault")]
    wanted += [("attention.tiers", _way(tier)), ("precision", "require_full_precision")]
    return Root(wanted=tuple(wanted), body="require_full_precision()" + body)


def _way(tier: str) -> str:
    """The name of the function that a tier computes by."""
    for node in ast.walk(_tree("attention.tiers")):
        named = {k.arg: k.value for k in getattr(node, "keywords", ())}
        if ast.unparse(named.get("name", ast.Constant(0))) == repr(tier):
            return ast.unparse(named["compute"]).strip("'").rpartition(":")[2]
    raise UnexplainedError(f"there is no way to compute attention called {tier!r}")


def _home_of(check: str) -> tuple[str, str] | None:
    """The family that makes an operation's cases: the module and the name of its table."""
    for name in ("elementwise", "reductions", "products", "norms", "moves"):
        for table, node in _tables(f"operators.{name}", "OperatorFamily"):
            if any(isinstance(n, ast.Constant) and n.value == check for n in ast.walk(node)):
                return (f"operators.{name}", table)
    return None


def _class_of(check: str) -> tuple[str, str] | None:
    """The module and the name of a class of hazards, if it is one."""
    for path in sorted((CHECKS / "hazards").glob("*.py")):
        module = f"hazards.{path.stem}"
        for table, node in _tables(module, "HazardClass"):
            named = next(k.value for k in node.keywords if k.arg == "name")
            if isinstance(named, ast.Constant) and named.value == check:
                return module, table
    return None


def _tables(module: str, kind: str) -> Iterator[tuple[str, ast.Call]]:
    for node in _tree(module).body:
        call = node.value if isinstance(node, ast.Assign) else None
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == kind:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Name):
                yield target.id, call


@cache
def _tree(module: str) -> ast.Module:
    path = CHECKS.joinpath(*module.split("."))
    file = path.with_suffix(".py")
    return ast.parse((file if file.is_file() else path / "__init__.py").read_text(encoding="utf-8"))


@dataclass(kw_only=True)
class Shaken:
    """The definitions that names need, with what those need in turn."""

    trees: dict[str, ast.Module] = field(default_factory=dict)
    kept: dict[str, set[str]] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)

    def script(self, wanted: tuple[tuple[str, str], ...]) -> Iterator[str]:
        """Imports, then definitions, each module's in its own order, after what it imports."""
        for module, name in wanted:
            self._need(module, name)
        owners: dict[str, str] = {}
        parts = []
        for module in self._order():
            for node in self.trees[module].body:
                names = set(_defines(node)) & self.kept[module]
                for name in sorted(names):
                    if owners.setdefault(name, module) != module and not _alike(
                        owners[name], module, name
                    ):
                        raise UnexplainedError(
                            f"{name} is two things, in {owners[name]} and {module}"
                        )
                if names:
                    parts.append(_text(node))
        yield "from __future__ import annotations\n\n" + "\n".join(
            ["import torch", *sorted(self.imports - {"import torch"})]
        )
        yield from dict.fromkeys(parts)

    def _order(self) -> Iterator[str]:
        """The modules of which something is kept, each after those that it imports."""
        seen: set[str] = set()

        def visit(module: str) -> Iterator[str]:
            if module in seen:
                return
            seen.add(module)
            taken = (node for pairs in _imported(module).values() for node, _ in pairs)
            names = dict.fromkeys(str(getattr(node, "module", "")) for node in taken)
            for name in names:
                if name.removeprefix(f"{PACKAGE}.") in self.trees:
                    yield from visit(name.removeprefix(f"{PACKAGE}."))
            yield module

        for module in list(self.trees):
            yield from visit(module)

    def _need(self, module: str, name: str) -> None:
        if module not in self.trees:
            self.trees[module], self.kept[module] = _tree(module), set()
        if name in self.kept[module]:
            return
        defining = _definitions(module).get(name, [])
        if defining:
            self.kept[module].add(name)
        if name in STAND_INS:
            return
        used = {n.id for node in defining for n in ast.walk(node) if isinstance(n, ast.Name)}
        used |= _quoted(defining)
        for other in sorted(used | (set() if defining else {name})):
            self._follow(module, other)

    def _follow(self, module: str, name: str) -> None:
        """A name as a module sees it: its own, another's of ours, or somebody else's."""
        if name in _definitions(module):
            self._need(module, name)
            return
        for node, alias in _imported(module).get(name, []):
            if isinstance(node, ast.ImportFrom):
                self._import_from(str(node.module), alias)
            else:
                self.imports.add(ast.unparse(ast.Import(names=[alias])))

    def _import_from(self, module: str, alias: ast.alias) -> None:
        if module.startswith(f"{PACKAGE}."):
            self._need(module.removeprefix(f"{PACKAGE}."), alias.name)
        else:
            taken = ast.ImportFrom(module=module, names=[alias], level=0)
            self.imports.add(ast.unparse(taken))


@cache
def _definitions(module: str) -> dict[str, list[ast.stmt]]:
    found: dict[str, list[ast.stmt]] = {}
    for node in _tree(module).body:
        for name in _defines(node):
            found.setdefault(name, []).append(node)
    return found


@cache
def _imported(module: str) -> dict[str, list[tuple[ast.stmt, ast.alias]]]:
    """What a module takes from elsewhere, by the name that it has there."""
    found: dict[str, list[tuple[ast.stmt, ast.alias]]] = {}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if getattr(node, "module", "") == "__future__":
                continue
            for alias in node.names:
                plain = alias.name.split(".")[0] if isinstance(node, ast.Import) else alias.name
                found.setdefault(alias.asname or plain, []).append((node, alias))
    return found


def _defines(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    names = [n for target in targets for n in ast.walk(target)]
    return tuple(n.id for n in names if isinstance(n, ast.Name))


def _quoted(nodes: list[ast.stmt]) -> set[str]:
    """Names in annotations that are written as text."""
    texts = [n.value for node in nodes for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return {word for text in texts if isinstance(text, str) for word in re.findall(r"^\w+$", text)}


def _alike(one: str, other: str, name: str) -> bool:
    """Whether two modules define a name in the same words."""
    texts = {ast.unparse(node) for m in (one, other) for node in _definitions(m).get(name, [])}
    return len(texts) == 1


def _text(node: ast.stmt) -> str:
    name = next(iter(_defines(node)), "")
    return STAND_INS.get(name) or ast.unparse(node)
