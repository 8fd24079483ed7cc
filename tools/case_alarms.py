"""Cases that a right device is refused for: PYTHONPATH=src python3 tools/case_alarms.py cpu TOPIC 7

Prints each fault of each seed as JSON lines, with the processor seconds of the seed. Needs torch.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from warpfront_checks.cases.catalogue import TOPICS
from warpfront_checks.cases.session import judge_operation
from warpfront_checks.check_options import CheckOptions
from warpfront_checks.precision import require_full_precision


def main() -> None:
    device, topic, seeds = sys.argv[1], sys.argv[2], [int(text) for text in sys.argv[3:]]
    torch.set_num_threads(1)
    require_full_precision()
    for seed in seeds:
        begun, cases, faults = time.process_time(), 0, 0
        for operation in TOPICS[topic]:
            tally = judge_operation(operation, device, CheckOptions(seeds=(seed,)))
            cases, faults = cases + tally.cases, faults + len(tally.faults)
            for fault in tally.faults[:2]:
                line = {"seed": seed, "operation": operation.name, "fault": fault[:500]}
                print(json.dumps(line), flush=True)
        seconds = round(time.process_time() - begun, 1)
        print(
            json.dumps(
                {"topic": topic, "seed": seed, "cases": cases, "faults": faults, "cpu": seconds}
            )
        )


if __name__ == "__main__":
    main()
