#!/usr/bin/env bash
# Made by `warpfront ci write`; docs/ci.md, A machine of one's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec "${WARPFRONT_PYTHON:-.venv/bin/python}" -m invoke runner --row "$1" --serve --forge "$2" --agent "$3" --token "${4:--}"
