#!/usr/bin/env bash
# Made by `warpfront ci write`; `warpfront ci check` says when it is stale.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
docker login "$REGISTRY" --username "$REGISTRY_USER" --password-stdin <<<"$REGISTRY_TOKEN"
