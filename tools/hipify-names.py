#!/usr/bin/env python3
"""Write the table of CUDA's names and their twins in HIP from hipify's own tables.

    tools/hipify-names.py --perl PATH --perl-version 7.2.4 --torch PATH --torch-version 2.13.0 \
        --undeclared FILE

--perl is a hipify-perl, --torch torch/utils/hipify/cuda_to_hip_mappings.py. --undeclared has one
name a line: device functions that hipify-perl calls unsupported, and that clang with HIP's headers
did not find either (`(void)(&::NAME);` in a device function). The table is
src/warpfront_port/data/hipify-names.txt.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "src/warpfront_port/data/hipify-names.txt"
NAME = re.compile(r"[A-Za-z_]\w*\Z")
SUBSTITUTION = re.compile(r'subst\("([^"]+)", "([^"]+)", "[^"]+"\)')
OF_CUDA = re.compile(r"(?i:cu|nv|__nv)")
HEAD = """\
# CUDA's names and their twins in HIP. Made by tools/hipify-names.py; not edited by hand.
# Facts from the tables of two programs, under the licences of their projects:
#   hipify-perl {perl} (Debian package hipify, https://github.com/ROCm/HIPIFY), MIT,
#     Copyright (c) 2015-present Advanced Micro Devices, Inc. All rights reserved.
#   torch/utils/hipify/cuda_to_hip_mappings.py of PyTorch {torch}, https://github.com/pytorch/pytorch,
#     BSD-3-Clause, Copyright (c) 2016-present, Facebook Inc. and PyTorch's contributors.
# A line is `CUDA HIP`, `CUDA` where the twin has the same words (cuda -> hip), or `! CUDA` for a
# name of CUDA that hipify knows and HIP lacks. Device functions after `!` were also looked for with
# clang and HIP {perl}'s headers. Lines of headers have a dot.
"""


def regular(name: str) -> str:
    """Return the twin by HIP's own habit: cuda -> hip, CUDA -> HIP, cu -> hip, CU -> HIP."""
    for cuda, hip in (("cuda", "hip"), ("CUDA", "HIP"), ("cu", "hip"), ("CU", "HIP")):
        if name.startswith(cuda):
            return hip + name[len(cuda) :]
    return name


def of_perl(text: str) -> tuple[dict[str, str], list[str]]:
    start = text.index("\nsub simpleSubstitutions")
    pairs = SUBSTITUTION.findall(text[start : text.index("\nsub ", start + 5)])
    start = text.index("@HipOnlyUnsupportedFunctions = (")
    lacking = re.findall(r'"(\w+)"', text[start : text.index(");", start)])
    return {cuda.replace("\\/", "/"): hip.replace("\\/", "/") for cuda, hip in pairs}, lacking


def of_torch(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = list(zip(node.keys, node.values, strict=True))
        if isinstance(node, ast.Tuple) and len(node.elts) == 2:
            pairs = [(node.elts[0], node.elts[1])]
        for key, value in pairs:
            words = value.elts if isinstance(value, ast.Tuple) else [value]
            tags = {word.id for word in words if isinstance(word, ast.Name)}
            strings = [word.value for word in (key, *words[:1]) if isinstance(word, ast.Constant)]
            if len(strings) == 2 and "HIP_UNSUPPORTED" not in tags:
                yield str(strings[0]), str(strings[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for option in ("--perl", "--torch", "--undeclared"):
        parser.add_argument(option, type=Path, required=True)
    parser.add_argument("--perl-version", required=True)
    parser.add_argument("--torch-version", required=True)
    options = parser.parse_args()
    perl, lacking = of_perl(options.perl.read_text("utf-8"))
    torch = {
        cuda: hip
        for cuda, hip in of_torch(ast.parse(options.torch.read_text("utf-8")))
        if OF_CUDA.match(cuda) and (NAME.match(cuda + hip) or ("." in cuda and "/" in hip))
    }
    none = {name for name in lacking if OF_CUDA.match(name)}
    none |= set(options.undeclared.read_text("utf-8").split())
    # A constant or type that torch maps to a name of HIP's has a twin; functions may differ.
    none -= {cuda for cuda, hip in torch.items() if cuda[:2] == "CU" and hip in perl.values()}
    twins = {**{cuda: hip for cuda, hip in torch.items() if cuda not in none}, **perl}
    # CUDA's headers declare `nv_bfloat16` as another name of `__nv_bfloat16`.
    twins |= {name: twins[f"__{name}"] for name in ("nv_bfloat16", "nv_bfloat162")}
    lines = [
        cuda if hip == regular(cuda) else f"{cuda} {hip}" for cuda, hip in sorted(twins.items())
    ]
    lines += [f"! {cuda}" for cuda in sorted(none - twins.keys())]
    head = HEAD.format(perl=options.perl_version, torch=options.torch_version)
    OUTPUT.write_text(head + "\n".join(lines) + "\n", "utf-8")
    print(f"{OUTPUT}: {len(twins)} twins, {len(lines) - len(twins)} without")


if __name__ == "__main__":
    main()
