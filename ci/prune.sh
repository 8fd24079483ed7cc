#!/usr/bin/env bash
# Made by `warpfront ci write`; `warpfront ci check` says when it is stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
"${WARPFRONT_PYTHON:-.venv/bin/python}" -m invoke release --prune nightly --dry-run
exec "${WARPFRONT_PYTHON:-.venv/bin/python}" -m invoke release --prune nightly --yes
