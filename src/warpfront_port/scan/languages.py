"""The languages of a tree: whether its sources are mostly in some that no engine reads. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from typing import Final

from warpfront.system.texts import counted
from warpfront_port.scan import cuda, notebooks, python
from warpfront_port.scan.reach import Product

_LANGUAGES: Final[Mapping[str, str]] = {
    **dict.fromkeys((".f", ".f77", ".f90", ".f95", ".f03", ".f08", ".for"), "Fortran"),
    ".cs": "C#",
    ".go": "Go",
    ".hs": "Haskell",
    ".java": "Java",
    ".jl": "Julia",
    ".kt": "Kotlin",
    ".lua": "Lua",
    ".ml": "OCaml",
    ".rb": "Ruby",
    ".rs": "Rust",
    ".scala": "Scala",
    ".swift": "Swift",
    ".zig": "Zig",
}
_OF_BROWSERS: Final = (".js", ".jsx", ".mjs", ".svelte", ".ts", ".tsx", ".vue")


def reason_of_languages(paths: Collection[str], product: Product) -> str:
    """Return why the sources of a tree give no grounds: most are in languages that are not read.

    "" where they do. Files count, without examples and tests. JavaScript counts where the root is
    a package of it and no distribution of Python: if not, it is a page for browsers.
    """
    scripts = "package.json" in paths and not product.installs
    languages = {**_LANGUAGES, **dict.fromkeys(_OF_BROWSERS if scripts else (), "JavaScript")}
    sources = [path for path in map(PurePosixPath, paths) if not product.is_aside(str(path))]
    read = sum(any(engine.reads(path) for engine in (python, cuda, notebooks)) for path in sources)
    named = (languages.get(path.suffix.lower()) for path in sources)
    counts = Counter(language for language in named if language is not None)
    if counts.total() <= read:
        return ""
    language, number = counts.most_common(1)[0]
    return f"{counted(number, f'{language} file')} not read"
