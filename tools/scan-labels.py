#!/usr/bin/env python3
"""What became of the findings that were labelled by hand: precision per repository and rule.

    tools/scan-labels.py REPOSITORY@COMMIT=FOLDER ... [--target gfx942]

FOLDER holds the files of REPOSITORY at COMMIT, as `tests/scan/labels.toml` names them.
"""

from __future__ import annotations

import argparse
import collections
import tomllib
from pathlib import Path

from warpfront_port.commands.scanning import ScanRequest, scan_tree
from warpfront_port.scan.targets import read_target

LABELS = Path(__file__).parents[1] / "tests" / "scan" / "labels.toml"
LOUD = {"warning", "error"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trees", nargs="+", metavar="REPOSITORY@COMMIT=FOLDER")
    parser.add_argument("--target", default="gfx942")
    options = parser.parse_args()
    folders = dict(tree.split("=", 1) for tree in options.trees)
    total: collections.Counter[str] = collections.Counter()
    by_rule: dict[str, collections.Counter[str]] = {}
    for tree in tomllib.loads(LABELS.read_text(encoding="utf-8"))["tree"]:
        name = f"{tree['repository']}@{tree['commit']}"
        if name not in folders:
            continue
        found = scan_tree(
            ScanRequest(repo=Path(folders[name]), target=read_target(options.target)), processes=1
        ).findings
        loud = {(one.path, one.line, one.rule) for one in found if one.severity in LOUD}
        known = {(one["path"], one["line"], one["rule"]): one["verdict"] for one in tree["labels"]}
        verdicts = collections.Counter(known[place] for place in loud & known.keys())
        print(f"{name}: {line_of(verdicts)}, {len(loud - known.keys())} without a label, "
              f"{len(known.keys() - loud)} labelled and not reported")  # fmt: skip
        total += verdicts
        for place in loud & known.keys():
            by_rule.setdefault(place[2], collections.Counter())[known[place]] += 1
    print(f"all: {line_of(total)}")
    for rule, verdicts in sorted(by_rule.items()):
        print(f"  {rule}: {line_of(verdicts)}")


def line_of(verdicts: collections.Counter[str]) -> str:
    whole = sum(verdicts.values()) or 1
    share = 100 * verdicts["true"] / whole
    return (
        f"{verdicts['true']} true, {verdicts['harmless']} harmless, {verdicts['false']} false "
        f"({share:.0f} % true)"
    )


if __name__ == "__main__":
    main()
