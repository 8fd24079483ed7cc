#!/usr/bin/env bash
# Made by `warpfront ci write`; `warpfront ci check` says when it is stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --require-hashes --requirement ci/requirements.txt
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
