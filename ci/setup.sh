#!/usr/bin/env bash
# Made by `invoke ci --write`; `invoke ci --check` says when it is stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python3 -m venv .venv
.venv/bin/python -m pip install --quiet --editable .
