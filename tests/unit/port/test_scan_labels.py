"""The labels given by hand can be used: known words, rules that exist, a reason each."""

from __future__ import annotations

import tomllib
from pathlib import Path

from warpfront.port.scan.catalogue import catalogue

LABELS = Path(__file__).parents[2] / "scan" / "labels.toml"


def test_labels_name_known_rules_and_give_a_reason() -> None:
    trees = tomllib.loads(LABELS.read_text(encoding="utf-8"))["tree"]
    assert sum(len(tree["labels"]) for tree in trees) >= 150
    for tree in trees:
        assert len(tree["commit"]) >= 10
        places = [(label["path"], label["line"], label["rule"]) for label in tree["labels"]]
        assert len(places) == len(set(places))
        for label in tree["labels"]:
            assert label["rule"] in catalogue()
            assert label["verdict"] in {"true", "harmless", "false"}
            assert label["reason"]
