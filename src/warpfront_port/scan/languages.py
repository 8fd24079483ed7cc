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
_TAGS = re.compile(r"(?m)^//go:build[ \t]+([^\n]*)")
_SYSTEMS = re.compile(r"![\w.]+|\b(?:linux|darwin|windows|unix|cgo|amd64|arm64)\b|\W")


def unread_languages(paths: Collection[str], product: Product) -> Mapping[str, str]:
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


def reason_of_languages(unread: Mapping[str, str]) -> str:
    """Return why sources in other languages give no grounds; "" where there are none."""
    counts = Counter(unread.values()).most_common(1)
    return "".join(f"{counted(number, f'{language} file')} not read" for language, number in counts)


def needs(source: SourceText) -> Iterator[Match]:
    """Yield what a file imports, opens or starts that NVIDIA alone has.

    A program needs it where a third of its lines do. What a tag of Go's opens is an option.
    """
    text, modules = source.text, modules_for_cuda(source.path.suffix[1:])
    tags = _TAGS.search(text)
    for match in () if tags and _SYSTEMS.sub("", tags[1]) else _NEED.finditer(text):
        named = match["module"] or match["path"]
        dotted = longest_known(re.sub(r"::|/", ".", named or ""), modules)
        if what := dotted if named else match[0].strip("\"'`/ \t\n"):
            start, end = match.span()
            yield Match(
                rule="LG801", start=start, end=end, excerpt=what, gate=Gate.CALLED, key=what
            )
