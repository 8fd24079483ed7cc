"""The languages of a tree that no engine reads, and what their files need of NVIDIA's. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from warpfront.system.texts import counted
from warpfront_port.scan import cuda, notebooks, python
from warpfront_port.scan.catalogue import expressions
from warpfront_port.scan.findings import Gate, Match, SourceText
from warpfront_port.scan.package_rules import longest_known, modules_for_cuda
from warpfront_port.scan.reach import Product
from warpfront_port.scan.structured.commands import of_cuda_alone

_ROWS = """C# .cs|Fortran .f .f77 .f90 .f95 .f03 .f08 .for|Go .go|Haskell .hs|Java .java
|Julia .jl|Kotlin .kt|Lua .lua|OCaml .ml|Ruby .rb|Rust .rs|Scala .scala|Swift .swift|Zig .zig"""
_LANGUAGES = {e: name for name, *ends in map(str.split, _ROWS.split("|")) for e in ends}
_OF_BROWSERS = (".js", ".jsx", ".mjs", ".svelte", ".ts", ".tsx", ".vue")
# `use nvml_wrapper::Nvml;`, `using CUDA`, `nvml "github.com/NVIDIA/go-nvml/pkg/nvml"`.
_NEED = re.compile(
    r"(?m)^[ \t]*(?:(?:pub[ \t]+)?(?:use|using|import|extern crate)[ \t]+(?P<module>[\w.:]+)"
    r"|(?:import[ \t]+)?(?:[\w.]+[ \t]+)?\"(?P<path>[\w./-]+)\"[ \t]*$)"
    rf"|{expressions('needs')['LG801'].pattern}"
)
MANIFEST = re.compile(r"(?:.*/)?(?:Cargo\.toml|Project\.toml|go\.mod)")
_NVIDIAS = re.compile(r"(?i)cuda|nvidia|nvml|cudnn|cublas")
_AMDS = re.compile(r"(?i)amdgpu|rocm|amd-?smi|\bhip")
_NEEDS_AMD = re.compile(
    r"[\"'`](?:(?:rocm|amd)-?smi|lib(?:amd|hip|rocm)\w+)\b|\bus(?:e|ing) (?i:amd|hip|rocm)"
)
_ADDRESS = re.compile(r"[\w.-]+\.\w+/\S+")
_TAGS = re.compile(r"(?m)^//go:build[ \t]+([^\n]*)")
_SYSTEMS = re.compile(r"![\w.]+|\b(?:linux|darwin|windows|unix|cgo|amd64|arm64)\b|\W")


def unread_sources(paths: Collection[str], product: Product) -> Mapping[str, str]:
    """Return the language of each source that no engine reads; none where more are read.

    Such a tree gives no grounds. Files count, without examples and tests. JavaScript counts where
    the root is a package of it and no distribution of Python: if not, it is a page for browsers.
    """
    scripts = "package.json" in paths and not product.installs
    languages = {**_LANGUAGES, **dict.fromkeys(_OF_BROWSERS if scripts else (), "JavaScript")}
    of_product = (p for p in paths if not (product.is_aside(p) or p.endswith("_test.go")))
    sources = [*map(PurePosixPath, of_product)]
    read = sum(any(engine.reads(path) for engine in (python, cuda, notebooks)) for path in sources)
    unread = {str(p): known for p in sources if (known := languages.get(p.suffix.lower()))}
    return unread if len(unread) > read else {}


def named_for_nvidia(
    texts: Mapping[str, str], manifests: Mapping[str, str]
) -> tuple[frozenset[str], bool]:
    """Return the sources that name NVIDIA outside of addresses, and true where AMD has a part."""
    named = {path for path, text in texts.items() if _NVIDIAS.search(_ADDRESS.sub("", text))}
    amd = any(map(_AMDS.search, manifests.values())) or any(map(_NEEDS_AMD.search, texts.values()))
    return frozenset(named), amd


def unread_reason(
    unread: Mapping[str, str], manifests: Mapping[str, str], *, of_nvidia: bool, amd: bool
) -> str:
    """Return why sources in other languages give no grounds; "" where there are none.

    A manifest names each package that a program imports: with AMD's, or without NVIDIA's, it runs.
    """
    of_nvidia = of_nvidia or any(map(_NVIDIAS.search, manifests.values()))
    if any("/" not in path for path in manifests) and (amd or not of_nvidia):
        return ""
    counts = Counter(unread.values()).most_common(1)
    return "".join(f"{counted(number, f'{language} file')} not read" for language, number in counts)


def rule_matches(source: SourceText) -> Iterator[Match]:
    """Yield what a file in such a language needs of NVIDIA's, and its other parts for CUDA."""
    matches = [*_needs(source)]
    yield from matches
    yield from of_cuda_alone(source.text, matches)


def _needs(source: SourceText) -> Iterator[Match]:
    """Yield what a file imports, opens or starts that NVIDIA alone has.

    A program needs it where a third of its lines do. What a tag of Go's opens is an option.
    """
    text, modules = source.text, modules_for_cuda(source.path.suffix[1:])
    tags = _TAGS.search(text)
    for match in () if tags and _SYSTEMS.sub("", tags[1]) else _NEED.finditer(text):
        named = match["module"] or match["path"]
        dotted = longest_known(re.sub(r"::|/", ".", named or ""), modules)
        if what := dotted if named else match["library"] or match[0].strip("\"'`/ \t\n"):
            start, end = match.span()
            yield Match(
                rule="LG801", start=start, end=end, excerpt=what, gate=Gate.CALLED, key=what
            )


def reads(path: PurePosixPath) -> bool:
    """Return true for a source in one of these languages."""
    return path.suffix.lower() in _LANGUAGES or path.suffix in _OF_BROWSERS
