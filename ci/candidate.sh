#!/usr/bin/env bash
# Made by `warpfront ci write`; `warpfront ci check` says when it is stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
export SOURCE_DATE_EPOCH WARPFRONT_BUILD_CACHE=ghcr.io/warpfront/build-cache
exec "${WARPFRONT_PYTHON:-.venv/bin/python}" -m invoke job --step build --to ghcr.io/warpfront --name "$NAME" --cells "$CELLS" --runner "$RUNNER"
