"""Rules about telling which device there is: names, capabilities, versions, libraries. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from warpfront_port.scan.python.module import Module, Seen, keyword, text_of
from warpfront_port.scan.python.tables import imports_nvidia

_DEVICE_NAME = re.compile(
    r"\b(?:nvidia|amd|radeon|geforce|quadro|tesla|rtx|titan|instinct|mi\d{2,3}x?|[ahlvb]\d{2,3}s?"
    r"|gh200|gb200|t4|p100|ada|gaudi\d?)\b",
    re.IGNORECASE,
)
_SAME_TEXT = frozenset({"lower", "upper", "strip", "casefold"})
_ARCH_LIST = ("get_arch_list",)
_LIBRARY = re.compile(
    r"(?:.*/)?(?:lib(?:cuda|cudart|nvidia-ml|nvrtc|cublas(?:Lt)?|cudnn\w*|nccl|nvToolsExt|cufile)\."
    r"(?:so|dylib)|(?:nvcuda|nvml|cudart\w*)\.dll)"
)
_ROCM_PLACE = re.compile(r"/opt/rocm(?:/.*)?\Z")
_WARP_NAME = re.compile(
    r"_*(?:WARP_?SIZE|THREADS_PER_WARP|WARP_THREADS|NUM_LANES)_*\Z", re.IGNORECASE
)
_DEPTH = 8
_OF_STRINGS = frozenset({"split", "replace", "startswith", "rsplit", "partition", "strip"})
_LAUNCHES = re.compile(r"triton|cuda|kernel|warp|launch|RawKernel|load_inline", re.IGNORECASE)


def _calls(module: Module, node: ast.AST, ends: tuple[str, ...]) -> bool:
    """Return true if `node`, or the one value of the name it is, is (built from) such a call."""
    for candidate in (node, module.scopes.one(node)):
        inner = candidate
        while isinstance(inner, ast.Subscript | ast.Attribute | ast.Call):
            if isinstance(inner, ast.Call) and module.dotted(inner.func).endswith(ends):
                return True
            inner = inner.func if isinstance(inner, ast.Call) else inner.value
        if isinstance(inner, ast.Name) and inner is not candidate and inner is not node:
            value = module.scopes.one(inner)
            if isinstance(value, ast.Call) and module.dotted(value.func).endswith(ends):
                return True
    return False


def comparisons(module: Module, node: ast.Compare) -> Iterator[Seen]:
    """Yield compared device names, compute capabilities and gfx names."""
    sides = [node.left, *node.comparators]
    yield from _device_names(module, node, sides)
    yield from _capabilities(module, node, sides)
    if isinstance(node.ops[0], ast.Eq | ast.NotEq) and any(
        "gcnArchName" in getattr(module.scopes.one(side), "attr", "") for side in sides
    ):
        words = [text for text in map(text_of, sides) if text and text.startswith("gfx")]
        if words and ":" not in words[0]:
            yield Seen(rule="PY052", node=node, what=module.source_of(node)[:80])


def _is_device_name(module: Module, node: ast.AST, depth: int = 0) -> bool:
    if depth > _DEPTH:
        return False
    inner = module.scopes.one(node)
    function = inner.func if isinstance(inner, ast.Call) else None
    if isinstance(function, ast.Attribute) and function.attr in _SAME_TEXT:
        return _is_device_name(module, function.value, depth + 1)
    if _calls(module, inner, ("get_device_name",)):
        return True
    if isinstance(inner, ast.Attribute) and inner.attr == "name":
        return _calls(module, inner.value, ("get_device_properties",))
    return False


def _device_names(module: Module, node: ast.AST, sides: list[ast.expr]) -> Iterator[Seen]:
    words = [
        text
        for side in sides
        for item in (side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side])
        if (text := text_of(item)) is not None and _DEVICE_NAME.search(text)
    ]
    if words and any(_is_device_name(module, side) for side in sides):
        yield Seen(rule="PY018", node=node, what=f'"{words[0]}"')


def name_prefixes(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `name.startswith("NVIDIA")`."""
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr in {"startswith", "endswith"}:
        yield from _device_names(module, node, [function.value, *node.args])


def _is_capability(module: Module, node: ast.AST, depth: int = 0) -> bool:
    if depth > _DEPTH:
        return False
    inner = module.scopes.one(node)
    if _calls(module, inner, ("get_device_capability",)):
        return True
    if isinstance(inner, ast.BinOp):
        return any(_is_capability(module, side, depth + 1) for side in (inner.left, inner.right))
    if isinstance(inner, ast.Attribute) and inner.attr in {"major", "minor"}:
        return _calls(module, inner.value, ("get_device_properties",))
    if isinstance(inner, ast.Tuple):
        return any(_is_capability(module, element, depth + 1) for element in inner.elts)
    return False


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return bool(node.elts) and all(_is_number(element) for element in node.elts)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _capabilities(module: Module, node: ast.Compare, sides: list[ast.expr]) -> Iterator[Seen]:
    if not any(_is_number(side) for side in sides):
        return
    if any(_is_capability(module, side) for side in sides):
        shift = -int(_is_lower_bound(node, sides))
        yield Seen(rule="PY019", node=node, what=module.shown(node), shift=shift)


def _is_lower_bound(node: ast.Compare, sides: list[ast.expr]) -> bool:
    """Return true for an ordered comparison with a capability below 9, such as `>= 8`.

    Every GPU of AMD's reports 9 or more, and so takes the arm of newer ones. Code for Ampere and
    later (bfloat16, say) most often fits them too.
    """
    numbers = (node.value for side in filter(_is_number, sides) for node in ast.walk(side)
               if isinstance(node, ast.Constant) and isinstance(node.value, int))  # fmt: skip
    first = next(numbers, _CDNA)
    ordered = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    return ordered and 0 < (first // 10 if first > _CODES else first) < _CDNA


_CDNA = 9
_CODES = 20


def capability_queries(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `current_platform.has_device_capability(90)`."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else module.dotted(node.func)
    if re.fullmatch(r"_*has_(?:device_)?(?:cuda_)?capability", name) and any(
        _is_number(argument) for argument in node.args
    ):
        yield from _asked_of_a_function(module, node, name)


def _asked_of_a_function(module: Module, node: ast.Call, name: str) -> Iterator[Seen]:
    """Yield a call that tests a capability, unless the project's function tests for ROCm itself.

    A call of an imported function is one level lower, since its code is unknown.
    """
    if isinstance(node.func, ast.Name):
        source = "".join(module.source_of(value) for value in module.returned.get(node.func.id, ()))
        if "version.hip" in source or "is_rocm" in source:
            return
        imported = node.func.id in module.imported
        yield Seen(rule="PY019", node=node, what=module.shown(node), shift=-int(imported))
        return
    yield Seen(rule="PY019", node=node, what=f"{name}: {module.shown(node)}")


def cuda_version_parsed(module: Module, node: ast.Attribute) -> Iterator[Seen]:
    """Yield `torch.version.cuda.split(".")`, `Version(torch.version.cuda)` and slices of it."""
    if module.dotted(node) != "torch.version.cuda":
        return
    parent = module.parents[node]
    attribute = isinstance(parent, ast.Attribute)
    sliced = isinstance(parent, ast.Subscript) and parent.value is node
    called = isinstance(parent, ast.Call) and node in parent.args
    name = module.dotted(parent.func).split(".")[-1] if isinstance(parent, ast.Call) else ""
    if attribute or sliced or (called and name in {"Version", "parse", "float", "LooseVersion"}):
        if not _asked_before(module, node):
            yield Seen(rule="PY021", node=parent, what=module.shown(parent))
    elif _is_bare_test(module, node) and not _is_for_nvidia(module, node):
        yield Seen(rule="PY022", node=node, what="torch.version.cuda")


def cuda_version_taken_apart(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `os.environ.get("X", torch.version.cuda).split(".")`, which is None unless X is set."""
    function = node.func
    if not isinstance(function, ast.Attribute) or function.attr not in _OF_STRINGS:
        return
    if "version.cuda" not in module.text or module.dotted(function.value) == "torch.version.cuda":
        return
    values = module.scopes.values(function.value)
    falls_back = isinstance(function.value, ast.BoolOp) and len(values) > 1
    named = any(module.dotted(value) == "torch.version.cuda" for value in values)
    if named and not falls_back and not _asked_before(module, node):
        yield Seen(rule="PY021", node=node, what=module.shown(node))


def _is_for_nvidia(module: Module, node: ast.AST) -> bool:
    """Return true if the test guards NVIDIA's own code, or the module tests for AMD as well."""
    if "version.hip" in module.text:
        return True
    test = next((p for p, _ in module.ancestors(node) if isinstance(p, ast.If)), None)
    return test is not None and any(
        imports_nvidia(inner) for statement in test.body for inner in ast.walk(statement)
    )


def _asked_before(module: Module, node: ast.AST) -> bool:
    """Return true after `torch.version.cuda` in the same `and`, or in a try that handles None.

    The gates handle exits and choices by side.
    """
    for parent, child in module.ancestors(node):
        if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
            before = parent.values[: parent.values.index(child)] if child in parent.values else []
            if any("torch.version.cuda" in module.source_of(value) for value in before):
                return True
        if isinstance(parent, ast.Try) and child in parent.body:
            return any(
                (
                    handler.type is None
                    or {"AttributeError", "TypeError", "Exception"} & {*_names(handler.type)}
                )
                and not any(isinstance(inner, ast.Raise) for inner in ast.walk(handler))
                for handler in parent.handlers
            )
    return False


def _names(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id


def _is_bare_test(module: Module, node: ast.AST) -> bool:
    parent = module.parents[node]
    if isinstance(parent, ast.Compare):
        operands = [side for side in (parent.left, *parent.comparators) if side is not node]
        if not all(isinstance(other, ast.Constant) and other.value is None for other in operands):
            return False
        node, parent = parent, module.parents[parent]
    while isinstance(parent, ast.BoolOp):
        node, parent = parent, module.parents[parent]
    return isinstance(parent, ast.If | ast.IfExp | ast.While | ast.UnaryOp) and node is not getattr(
        parent, "body", None
    )


def arch_lists(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `get_arch_list()` with its elements split at `_`."""
    function = node.func
    if not isinstance(function, ast.Attribute) or function.attr not in {"split", "partition"}:
        return
    if not node.args or text_of(node.args[0]) != "_":
        return
    scope = module.source_of(module.scope(node)) if module.in_function(node) else module.text
    if "get_arch_list" in scope and _elements_of_arch_list(module, function.value):
        yield Seen(rule="PY019", node=node, what=module.shown(node))


def _elements_of_arch_list(module: Module, node: ast.AST) -> bool:
    for parent, _ in module.ancestors(node):
        generators = getattr(parent, "generators", None)
        if generators and any(_calls(module, item.iter, _ARCH_LIST) for item in generators):
            return True
        if isinstance(parent, ast.For) and _calls(module, parent.iter, _ARCH_LIST):
            return True
    return _calls(module, node, _ARCH_LIST)


def nvml_as_a_test(module: Module, node: ast.Try) -> Iterator[Seen]:
    """Yield `try: nvmlInit() except: <go on with the CPU>`."""
    started = [
        inner
        for statement in node.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.Call)
        and module.dotted(inner.func).endswith((".nvmlInit", "nvmlInit_v2"))
    ]
    for handler in node.handlers if started else ():
        text = "".join(module.source_of(statement) for statement in handler.body).lower()
        if "cpu" in text or "false" in text or "= 0" in text:
            yield Seen(rule="PY015", node=started[0], what="nvmlInit()")
            return


def mock_fallbacks(module: Module, node: ast.Try) -> Iterator[Seen]:
    """Yield `except Exception:` around a device's start that goes on with the CPU or a mock."""
    body = "".join(module.source_of(statement) for statement in node.body)
    if not re.search(r"\.to\(|\.cuda\(|cuda|hip\b|rocm", body):
        return
    for handler in node.handlers:
        wide = handler.type is None or module.dotted(handler.type) in {"Exception", "BaseException"}
        source = "".join(module.source_of(statement) for statement in handler.body)
        gives_up = re.search(
            r"""mock|device\w*\s*=\s*(?:torch\.device\()?["']cpu["']"""
            r"""|return\s+(?:torch\.device\()?["']cpu["']""",
            source,
            re.IGNORECASE,
        )
        raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(handler))
        if wide and gives_up and not raises:
            yield Seen(rule="PY059", node=handler, what=module.shown(handler).split(":")[0])


def home_as_switch(module: Module, node: ast.Name | ast.Attribute) -> Iterator[Seen]:
    """Yield `if CUDA_HOME is not None:` and `if ROCM_HOME:` as the question which build this is."""
    if not module.names("CUDA_HOME", "ROCM_HOME"):
        return
    last = module.dotted(node).split(".")[-1]
    if last not in {"CUDA_HOME", "ROCM_HOME"} or not isinstance(node.ctx, ast.Load):
        return
    test = _enclosing_test(module, node)
    if test is None:
        return
    text = module.source_of(test)
    if last == "CUDA_HOME" and not re.search(r"hip|rocm", text, re.IGNORECASE):
        knows_hip = re.search(r"version\.hip|HIP_HOME|ROCM_HOME|IS_HIP", module.text) is not None
        refuses = _refuses_without(module, test)
        rule, worse = ("BL216", 1) if refuses else ("PY047", 0)
        yield Seen(rule=rule, node=node, what=text, shift=worse - int(knows_hip))
    elif last == "ROCM_HOME" and "version.hip" not in text and "CUDA_HOME" not in text:
        yield Seen(rule="PY048", node=node, what="ROCM_HOME")


def _refuses_without(module: Module, test: ast.AST) -> bool:
    """Return true for `if CUDA_HOME is None: raise`."""
    tested = module.parents.get(test)
    body = tested.body if isinstance(tested, ast.If) else []
    return bool(body) and isinstance(body[-1], ast.Raise)


def _enclosing_test(module: Module, node: ast.AST) -> ast.AST | None:
    """Return the whole condition around the operand `node` (and/or/not and None checks)."""
    for parent, child in module.ancestors(node):
        if isinstance(parent, ast.If | ast.IfExp) and child is parent.test:
            worded = isinstance(parent, ast.IfExp) and text_of(parent.body) is not None
            return None if worded else parent.test
        if isinstance(parent, ast.Compare):
            sides = [parent.left, *parent.comparators]
            if not any(isinstance(side, ast.Constant) and side.value is None for side in sides):
                return None
        elif isinstance(parent, ast.Assign) and isinstance(
            child, ast.BoolOp | ast.Compare | ast.IfExp
        ):
            return parent.value
        elif not isinstance(parent, ast.BoolOp | ast.UnaryOp | ast.IfExp):
            return None
    return None


def rocm_folder(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `os.path.exists("/opt/rocm")`."""
    name = module.dotted(node.func).split(".")[-1]
    argument = node.args[0] if node.args else None
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call):
        name, inner = node.func.attr, node.func.value
        argument = inner.args[0] if inner.args else argument
    if name not in {"exists", "isdir", "is_dir"} or argument is None:
        return
    text = text_of(argument)
    if text is not None and _ROCM_PLACE.match(text):
        yield Seen(rule="PY048", node=node, what=f'"{text}"')


def libraries(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `ctypes.CDLL("libcuda.so.1")`."""
    name = module.dotted(node.func).split(".")[-1]
    if name not in {"CDLL", "PyDLL", "WinDLL", "LoadLibrary", "load_library", "dlopen"}:
        return
    text = text_of(module.scopes.one(node.args[0])) if node.args else None
    if text is not None and _LIBRARY.match(text):
        yield Seen(rule="PY049", node=node, what=text)


def library_choices(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `torch.backends.cuda.preferred_linalg_library("cusolver")`."""
    name = module.dotted(node.func).split(".")[-1]
    if name in {"preferred_linalg_library", "preferred_blas_library"}:
        text = text_of(node.args[0]) if node.args else text_of(keyword(node, "backend"))
        if text is not None and text.startswith("cu"):
            yield Seen(rule="PY050", node=node, what=f'{name}("{text}")')


def arch_alternatives(module: Module, node: ast.BoolOp) -> Iterator[Seen]:
    """Yield `"gfx1200" or "gfx1201" in arch`: true whatever `arch` is."""
    if isinstance(node.op, ast.Or) and any(
        (text := text_of(value)) is not None and text.startswith(("gfx", "sm_"))
        for value in node.values[:-1]
    ):
        yield Seen(rule="PY052", node=node, what=module.shown(node))


def core_arithmetic(module: Module, node: ast.BinOp) -> Iterator[Seen]:
    """Yield `multi_processor_count * 128`: cores or threads of an SM that a CU does not have."""
    if not isinstance(node.op, ast.Mult):
        return
    for side, other in ((node.left, node.right), (node.right, node.left)):
        counted = isinstance(side, ast.Attribute) and side.attr == "multi_processor_count"
        number = other.value if isinstance(other, ast.Constant) else None
        if counted and isinstance(number, int) and number in {32, 64, 128, 192}:
            yield Seen(rule="PY054", node=node, what=module.shown(node))


def warp_sizes(module: Module, node: ast.Assign) -> Iterator[Seen]:
    """Yield `WARP_SIZE = 32` on the host, in a module that launches kernels."""
    if isinstance(node.value, ast.Constant) and node.value.value == 32:
        for target in node.targets:
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", "")
            if _WARP_NAME.match(name) and _LAUNCHES.search(module.text):
                yield Seen(rule="PY055", node=node, what=f"{name} = 32")


def patched_packages(module: Module, node: ast.Constant) -> Iterator[Seen]:
    """Yield files copied over those of an installed package, in commands and in sentences."""
    text = node.value
    if not isinstance(text, str) or "site-packages" not in text or node in module.docstrings:
        return
    if re.search(r"\b(?:cp|rsync|ln)\s+-\w+\s", text):
        yield Seen(rule="PY060", node=node, what="site-packages")


def copied_over(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `shutil.copytree(ours, Path(transformers.__file__).parent)`."""
    name = module.dotted(node.func)
    if name not in {"shutil.copytree", "shutil.copy", "shutil.copyfile", "shutil.copy2"}:
        return
    if len(node.args) < 2:
        return
    target = node.args[1]
    text = module.source_of(target) + module.source_of(module.scopes.one(target))
    if "site-packages" in text or (
        "__file__" in text
        and text.strip() != "__file__"
        and re.search(r"\b[a-z]\w*\.__file__", text)
    ):
        yield Seen(rule="PY060", node=node, what=module.shown(target))


def nccl(module: Module, node: ast.Call) -> Iterator[Seen]:
    """Yield `init_process_group("nccl")`. RCCL accepts it on ROCm; Gaudi needs hccl."""
    if module.dotted(node.func).split(".")[-1] not in {"init_process_group", "new_group"}:
        return
    for argument in (*node.args[:1], *(i.value for i in node.keywords if i.arg == "backend")):
        for rule in ("HP602", "HP602") if text_of(argument) in {"nccl", "cuda:nccl"} else ():
            yield Seen(rule=rule, node=argument, what=f'"{text_of(argument)}"')
