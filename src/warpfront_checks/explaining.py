"""A failure as a script of its own. A case of the catalogue prints itself; of the other checks the
script has those definitions that the case needs, by name, from their sources.
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

from warpfront_checks.cases.axes import axes_of, build
from warpfront_checks.cases.catalogue import CATALOGUE
from warpfront_checks.results import (
    FAILED,
    CheckRecord,
    ResultsError,
    read_results,
    surroundings,
)

CHECKS = Path(__file__).parent
PACKAGE = "warpfront_checks"
# Read from data files of the package, which a script does not have; profiles are no part of a case.
STAND_INS = {"tolerances": "def tolerances():\n    return {}"}
DEVICES = ("cpu", "cuda", "hpu", "xpu")
DIRECTIONS = ("", "backward", "otherwise")
# Every dtype that a check may name; a test compares them with torch's.
DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "complex128",
    "complex64",
    "complex32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
_DTYPE = rf"(?P<dtype>{'|'.join(sorted(DTYPES, key=len, reverse=True))})"
_SEEDED = r"seed (?P<seed>[0-9]{1,20})"
_OPERATOR = re.compile(rf"^{_DTYPE}, (?P<case>.+), {_SEEDED}: ")
_ROW = re.compile(rf"^(?P<case>.+), {_DTYPE}, {_SEEDED}: ")
_SAMPLE = re.compile(rf"^(?P<case>.+), sample (?P<sample>[0-9]{{1,20}}), {_SEEDED}: ")
_SEED = re.compile(_SEEDED)
_SWEEP = re.compile(rf"^{_DTYPE} ?(?P<how>{'|'.join(DIRECTIONS)})\Z")
_GOLDEN = re.compile(rf"^[^:]+: (?P<case>.+) {_DTYPE}\Z")
_DEVICE = re.compile(
    rf"^(?P<place>({'|'.join(DEVICES)})(:[0-9]{{1,4}})?): (?P<case>.+) {_DTYPE}"
    r" (out|grad/[0-9]+): [0-9.e+]+ times"
)
_WAY = re.compile(
    rf"^{_DTYPE} width (?P<width>[0-9]{{1,6}}), (?P<mask>\w+), (?P<heads>grouped|equal heads),"
    r" (?P<way>\w+): wrong"
)
_SHOWN = 2000
CASES = ", cases"
FLOATS = ("float32", "bfloat16", "float16", "float64")


class UnexplainedError(Exception):
    """There is no such failure, or none that a script could repeat; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Root:
    """The end of a script, and the definitions that it needs: (module below checks, name).

    A results file is foreign text. Everything of it is one of `values`, which a script has as
    constants; `body` consists of texts of this module and names of these sources.
    """

    wanted: tuple[tuple[str, str], ...]
    values: Mapping[str, str | int]
    body: str


def explained(result: Path, check: str) -> str:
    """Return the script that repeats the first failure of a check.

    Raises `UnexplainedError` where no script can, and `ResultsError` for any other file.
    """
    try:
        document = json.loads(result.read_text(encoding="utf-8"))
    except RecursionError:
        raise ResultsError("it is nested too deeply") from None
    named = document if isinstance(document, dict) else {}
    session, target = str(named.get("session")), str(named.get("target"))
    checks = read_results(document, session=session, target=target).checks
    check_record = next((candidate for candidate in checks if candidate.name == check), None)
    if check_record is None:
        names = ", ".join(candidate.name for candidate in checks) or "none"
        raise UnexplainedError(f"{result} has no check {check!r}\nhint: it has {names}")
    if check_record.outcome != FAILED:
        raise UnexplainedError(f"{check} is {check_record.outcome}: no case of it failed")
    if check.endswith(CASES):
        return _case_script(check_record)
    fault = _first_fault(check_record)
    environment = surroundings(document, session=session)
    root = _root(session, check, fault, _device(environment, target))
    return _script(f"{check}: {fault[:_SHOWN]}", root, _drawn(environment))


def _case_script(check_record: CheckRecord) -> str:
    """Return the report of a failed case as comments, and its script. Every value of the file has
    to be one that the catalogue has.
    """
    stored_case = check_record.details.get("case")
    case = stored_case if isinstance(stored_case, dict) else {}
    operation = CATALOGUE.get(str(case.get("operation")))
    stored, device = case.get("assignment"), case.get("device")
    if operation is None or not isinstance(stored, dict) or device not in DEVICES:
        raise UnexplainedError(f"{check_record.name}: the file has no case of the catalogue")
    assignment: dict[str, Any] = {}
    for axis, values in axes_of(operation, FLOATS).items():
        if axis in stored:
            matching = [value for value in values if _as_json(value) == _as_json(stored[axis])]
            if not matching and not axis.startswith("memory"):
                raise UnexplainedError(f"{check_record.name}: {axis} is not one of the catalogue's")
            assignment[axis] = matching[0] if matching else "contiguous"
    lengths = stored.get("lengths")
    numbers = {key: stored.get(key) for key in ("seed", "wide", "rank")}
    sizes = lengths if isinstance(lengths, dict) else {}
    if any(type(n) is not int or n < 0 for n in (*numbers.values(), *sizes.values())):
        raise UnexplainedError(f"{check_record.name}: a size or the seed is no number")
    script = build(operation, {**assignment, **numbers, "lengths": sizes}, str(device))
    listed = check_record.details.get("report")
    lines = listed if isinstance(listed, list) else []
    comments = [f"# {str(line)[:_SHOWN].encode('unicode_escape').decode()}" for line in lines]
    return "\n".join([*comments, repr(script)]) + "\n"


def _as_json(value: object) -> str:
    return json.dumps(value, default=str)


def _script(title: str, root: Root, seeds: Mapping[str, int]) -> str:
    """Return a script whose foreign texts are constants: each is written by `repr`."""
    values = {**seeds, **root.values}
    if any(type(value) not in {str, int, bool} for value in values.values()):
        raise UnexplainedError("a value of the case is no constant")
    constants = "\n".join(f"{name} = {value!r}" for name, value in values.items())
    return "\n\n".join([repr(title), *_definitions_of(root.wanted), constants, root.body]) + "\n"


@cache
def _definitions_of(definitions: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(Shaken().script(definitions))


def _first_fault(check_record: CheckRecord) -> str:
    for name in ("faults", "bad"):
        listed = check_record.details.get(name)
        if isinstance(listed, list) and listed:
            return str(listed[0])
    return check_record.reason


def _drawn(environment: Mapping[str, object]) -> dict[str, int]:
    """Return the amount of checks, and the seed that was drawn for it."""
    effort = environment.get("effort")
    effort = effort if isinstance(effort, dict) else {}
    seeds = effort.get("drawn")
    first = seeds[0] if isinstance(seeds, list) and seeds else 0
    return {"quick": bool(effort.get("quick")), "drawn": first if type(first) is int else 0}


def _device(environment: Mapping[str, object], target: str) -> str:
    if (device := environment.get("device")) in DEVICES:
        return str(device)
    if target in {"cpu", environment.get("machine")}:
        return "cpu"
    by_target = {"sm_": "cuda", "gfx": "cuda", "gaudi": "hpu"}
    return next((name for begins, name in by_target.items() if target.startswith(begins)), "xpu")


def _root(session: str, check: str, fault: str, device: str) -> Root:
    home = _class_of(check) if session == "operators" else None
    if home and (match := _ROW.match(fault)):
        return _row_root(home, match, device)
    if session == "operators" and (match := _OPERATOR.match(fault)):
        return _operator_root(check, match, device)
    sweep_match = _SWEEP.match(check)
    if session == "opinfo" and sweep_match and (match := _SAMPLE.match(fault)):
        return _sample_root(sweep_match, match, device)
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


def _case(match: re.Match[str], device: str, **extra: str | int) -> dict[str, str | int]:
    """Return the values that a fault names."""
    named = match.groupdict()
    named_values = {key: named[key] for key in ("dtype", "case") if named.get(key)}
    numbers = {key: int(named[key]) for key in ("seed", "sample", "width") if named.get(key)}
    return {"device": device, **named_values, **numbers, **extra}


def _operator_root(check: str, match: re.Match[str], device: str) -> Root:
    home = _home_of(check)
    definitions = [("operators.cases", n) for n in ("make_maker", "execute_case")]
    definitions += [
        ("operators.verdicts", n) for n in ("expect", "_pairs", "_alone", "_judge_tensor")
    ]
    if home is None and check not in _keys("operators.fused", "PATTERNS"):
        raise UnexplainedError(f"there is no operation called {check!r}")
    definitions.append(home or ("operators.fused", "pattern_cases"))
    cases = f"{home[1]}.cases[name](maker)" if home else "pattern_cases(name, maker)"
    body = f"""failed, dtype = False, getattr(torch, dtype)
maker = make_maker(dtype, seed, quick=quick)
case = next(one for one in {cases} if one.name == case)
expected = expect(case, dtype, device, seed)
found = execute_case(case, expected.cotangent, device)
alone = _alone(case, dtype, device)
for name, x, budgeted, cpu in _pairs(found, expected, alone=alone):
    share, ratio, faults = _judge_tensor(name, x, budgeted, cpu, dtype)
    print(name, "share of the bound", share, "RMS ratio", ratio, *faults, sep="; ")
    print("  reference", budgeted.reference.flatten()[:5], "bound", budgeted.bound.flatten()[:5])
    if faults:
        failed = True
print('failed:', failed)"""
    return Root(wanted=tuple(definitions), values=_case(match, device, name=check), body=body)


def _row_root(home: tuple[str, str], match: re.Match[str], device: str) -> Root:
    module, table = home
    body = f"""failed, dtype = False, getattr(torch, dtype)
row = next(row for row in {table}.hazards if row.name == case)
generator = torch.Generator().manual_seed(seed)
ground = CaseContext(device=device, dtype=dtype, seed=seed, generator=generator, quick=quick)
for answer in row.answers(ground):
    fault, share = answer_fault(answer)
    if fault:
        failed = True
        print(fault, "; allowed", answer.ulps, "units in the last place and", answer.slack)
print('failed:', failed)"""
    names = ("CaseContext", "answer_fault")
    definitions = ((module, table), *(("edge_cases.answers", name) for name in names))
    return Root(wanted=definitions, values=_case(match, device), body=body)


def _sample_root(check: re.Match[str], match: re.Match[str], device: str) -> Root:
    body = """require_full_precision()
failed, dtype = False, getattr(torch, dtype)
entry = next(entry for entry in load_database() if entry.name == case)
samples = list(samples_for(entry, dtype, device=device, how=how, quick=quick))
expected = expect_sample(entry, samples[sample], dtype, seed, backward=how == "backward")
for asked in asked_as(entry, samples[sample], sample, dtype):
    found = execute_entry(entry, asked, expected.cotangents, device)
    verdict = expected.judge(found, device)
    failed = failed or bool(verdict.faults)
    print("RMS ratio", verdict.rms_ratio, "element", verdict.budget_used, *verdict.faults, sep="; ")
print('failed:', failed)"""
    sweep = ("asked_as", "samples_for")
    definitions = (*(("opinfo.sweep", name) for name in sweep), ("opinfo.adapter", "load_database"))
    definitions += (("opinfo.expecting", "expect_sample"),)
    definitions += (
        ("opinfo.entry_verdicts", "execute_entry"),
        ("precision", "require_full_precision"),
    )
    values = _case(match, device, dtype=check["dtype"], how=check["how"])
    return Root(wanted=definitions, values=values, body=body)


def _network_root(session: str, check: str, seed: int, device: str) -> Root:
    name, _, mode = check.partition(" ")
    table = "NETWORKS" if session == "numerics" else "FAMILIES"
    if name not in _keys("models.families", table):
        raise UnexplainedError(f"there is no network of ours called {name!r}")
    body = f"""require_full_precision()
family = next(family for family in {table} if family.name == name)
rows = judge_mode(family, mode, Proving(device=device, seed=seed))
print(*(row.fault for row in rows if row.fault), sep="\\n")
print('failed:', any(row.fault for row in rows))"""
    definitions = [("models.families", table)]
    definitions += [("models.modes", name) for name in ("judge_mode", "Proving")]
    values: dict[str, str | int] = {"device": device, "name": name, "mode": mode, "seed": seed}
    all_definitions = (*definitions, ("precision", "require_full_precision"))
    return Root(wanted=all_definitions, values=values, body=body)


def _golden_root(match: re.Match[str], place: str, seed: str) -> Root:
    """Return a case of the golden suite; its inputs are made by its own number, or
    that of `devices`.
    """
    body = f"""require_full_precision()
name, dtype = case, getattr(torch, dtype)
case, seed, failed = BY_NAME[name], {seed}, False
inputs, cotangent = case.make(dtype, seed)
budgets = case.expect(inputs, cotangent, torch.device(device).type)
for part, x in compute(case.operation, inputs, cotangent, device).items():
    share, fault = element_fault(part, x.detach().cpu().double(), budgets[part])
    failed = failed or bool(fault)
    print(part, "share of the bound", share, fault, sep="; ")
print('failed:', failed)"""
    definitions = [
        ("golden.suite", "BY_NAME"),
        ("golden.suite", "compute"),
        ("judge", "element_fault"),
    ]
    definitions += [("precision", "require_full_precision")]
    definitions += [("devices.device_session", "SEED")] if seed == "SEED" else []
    return Root(wanted=tuple(definitions), values=_case(match, place), body=body)


def _attention_root(tier: str, match: re.Match[str], device: str) -> Root:
    way = _way(tier)
    values = _case(match, device, mask=match["mask"], grouped=match["heads"] == "grouped")
    values["backward"] = match["way"] == "backward"
    body = f"""require_full_precision()
item = dict(dtype=dtype, mask=mask, width=width, device=device, backward=backward)
item |= dict(batch=BATCH, heads=HEADS, grouped=GROUPED if grouped else HEADS)
own = _CaseInputs(dict(item, length=LENGTHS[device], seed=drawn))
how = Arithmetic(dtype=own.dtype, device=own.device)
inputs, failed = [x.double() for x in own.tensors], False
budgets = expected(inputs, own.cotangent.double(), own.allowed, how)
for name, x, budgeted in zip(("output", "q", "k", "v"), own.run({way}), budgets):
    share, fault = element_fault(name, x.detach().cpu().double(), budgeted)
    failed = failed or bool(fault)
    print(name, "share of the bound", share, fault, sep="; ")
print('failed:', failed)"""
    definitions = [
        ("attention.backend_session", n) for n in ("BATCH", "HEADS", "GROUPED", "LENGTHS")
    ]
    definitions += [("attention.backend_worker", name) for name in ("_CaseInputs", "expected")]
    definitions += [("operations", "Arithmetic"), ("judge", "element_fault")]
    definitions += [("attention.backends", way), ("precision", "require_full_precision")]
    return Root(wanted=tuple(definitions), values=values, body=body)


def _way(tier: str) -> str:
    """Return the name of the function that a tier computes by."""
    for node in ast.walk(_tree("attention.backends")):
        named = {k.arg: k.value for k in getattr(node, "keywords", ())}
        if ast.unparse(named.get("name", ast.Constant(0))) == repr(tier):
            return ast.unparse(named["compute"]).strip("'").rpartition(":")[2]
    raise UnexplainedError(f"there is no way to compute attention called {tier!r}")


def _home_of(check: str) -> tuple[str, str] | None:
    """Return the family that makes an operation's cases: the module and the name of its table."""
    for name in ("elementwise", "reductions", "products", "norms", "moves"):
        for table, _ in _tables(f"operators.{name}", "OperatorFamily"):
            if check in _keys(f"operators.{name}", table):
                return (f"operators.{name}", table)
    return None


def _keys(module: str, table: str) -> frozenset[str]:
    """Return the names that a table of these sources has: keys of its dictionaries, or each
    entry's `name` or first argument.
    """
    nodes = [n for node in _definitions(module).get(table, []) for n in ast.walk(node)]
    keys = [key for n in nodes if isinstance(n, ast.Dict) for key in n.keys]
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    keys += [k.value for n in calls for k in n.keywords if k.arg == "name"]
    keys += [n.args[0] for n in calls if n.args]
    return frozenset(
        k.value for k in keys if isinstance(k, ast.Constant) and isinstance(k.value, str)
    )


def _class_of(check: str) -> tuple[str, str] | None:
    """Return the module and the name of a class of hazards, if it is one."""
    for path in sorted((CHECKS / "edge_cases").glob("*.py")):
        module = f"edge_cases.{path.stem}"
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

    def script(self, definitions: tuple[tuple[str, str], ...]) -> Iterator[str]:
        """Imports, then definitions, each module's in its own order, after what it imports."""
        for module, name in definitions:
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
        """Return the modules with needed definitions, each after those that it imports."""
        visited: set[str] = set()

        def visit(module: str) -> Iterator[str]:
            if module in visited:
                return
            visited.add(module)
            statements = (node for pairs in _imported(module).values() for node, _ in pairs)
            names = dict.fromkeys(str(getattr(node, "module", "")) for node in statements)
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
        """Follow a name of a module: its own, one of another module of ours, or one
        of a library.
        """
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
            statement = ast.ImportFrom(module=module, names=[alias], level=0)
            self.imports.add(ast.unparse(statement))


@cache
def _definitions(module: str) -> dict[str, list[ast.stmt]]:
    definitions: dict[str, list[ast.stmt]] = {}
    for node in _tree(module).body:
        for name in _defines(node):
            definitions.setdefault(name, []).append(node)
    return definitions


@cache
def _imported(module: str) -> dict[str, list[tuple[ast.stmt, ast.alias]]]:
    """Return the imports of a module, by the name that each has in the module."""
    imports: dict[str, list[tuple[ast.stmt, ast.alias]]] = {}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            if getattr(node, "module", "") == "__future__":
                continue
            for alias in node.names:
                plain = alias.name.split(".")[0] if isinstance(node, ast.Import) else alias.name
                imports.setdefault(alias.asname or plain, []).append((node, alias))
    return imports


def _defines(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return (node.name,)
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    names = [n for target in targets for n in ast.walk(target)]
    return tuple(n.id for n in names if isinstance(n, ast.Name))


def _quoted(nodes: list[ast.stmt]) -> set[str]:
    """Return names in annotations that are written as text."""
    texts = [n.value for node in nodes for n in ast.walk(node) if isinstance(n, ast.Constant)]
    return {word for text in texts if isinstance(text, str) for word in re.findall(r"^\w+$", text)}


def _alike(first: str, other: str, name: str) -> bool:
    """Return whether two modules define a name in the same words."""
    texts = {ast.unparse(node) for m in (first, other) for node in _definitions(m).get(name, [])}
    return len(texts) == 1


def _text(node: ast.stmt) -> str:
    name = next(iter(_defines(node)), "")
    return STAND_INS.get(name) or ast.unparse(node)
