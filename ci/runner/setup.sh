#!/usr/bin/env bash
# Made by `warpfront ci write`; docs/ci.md, A machine of one's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
apt-get update --quiet=2
apt-get install --quiet=2 --yes --no-install-recommends ca-certificates git python3 python3-venv
ci/setup.sh
exec "${WARPFRONT_PYTHON:-.venv/bin/python}" -m invoke runner --row "$1" --prepare
