"""The labels given by hand can be used: known words, rules that exist, a reason each."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

from warpfront_port.scan.catalogue import catalogue

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


FIRST_LOOKS = LABELS.parents[2] / "docs" / "results" / "scan-labels.tsv"
MOST_FALSE = 1 / 8
OTHER_FORM = {
    "CU109": "only what is in a file that names HIP is loud there, and of that none was false",
    "CU111": "the forms that were false, a number shifted by a lane or a plane, are notes there",
}


def test_what_is_loud_despite_a_port_was_hardly_ever_false_at_first_look() -> None:
    """A port was run: a rule that was false of one tree in eight says no more there than a note."""
    labels: dict[str, Counter[str]] = defaultdict(Counter)
    with FIRST_LOOKS.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            if row["severity"] in {"warning", "error"}:
                labels[row["rule"]][row["label"]] += 1
    wrong = {
        rule: dict(said)
        for rule, said in labels.items()
        if said["false"] > MOST_FALSE * said.total() and catalogue()[rule].despite_a_port
    }
    assert wrong.keys() == OTHER_FORM.keys()
