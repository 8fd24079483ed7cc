#!/usr/bin/env bash
# Made by `warpfront ci write`; `warpfront ci check` says when it is stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${WARPFRONT_PYTHON:-.venv/bin/python}" -m invoke job --step publish --channel "$CHANNEL" --name "$NAME" --cells "$CELLS" --runner "$RUNNER" --after "${AFTER:-}"
