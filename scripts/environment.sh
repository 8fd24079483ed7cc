# shellcheck shell=bash
# Sourced by quickstart and test: a virtual environment of this checkout, made once per state of pyproject.toml.
# Sets PYTHON (the environment's) and CHECKS_PYTHON (that of an image's torch, which install_checks makes). Package indexes, proxies and certificates are pip's own configuration.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
ENVIRONMENT="${WARPFRONT_VENV:-.venv}"
PYTHON="$ENVIRONMENT/bin/python"
CHECKS_ENVIRONMENT="$ENVIRONMENT-checks"
CHECKS_PYTHON="$CHECKS_ENVIRONMENT/bin/python"
CHECKS_LOCK=images/locks/pylock.cpu-x86_64-py311-torch2130-torch.toml

find_python() {
  local candidate
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "warpfront needs Python 3.11 or newer; this machine has none (Debian 12, 13, Ubuntu 24.04: apt-get install python3)" >&2
  exit 1
}

make_environment() {
  local python=$1
  if "$python" -m venv "$ENVIRONMENT" >/dev/null 2>&1; then return; fi
  rm -rf "$ENVIRONMENT"
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && confirm "install Debian's python3-venv with apt-get?"; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq python3-venv >/dev/null
    "$python" -m venv "$ENVIRONMENT"
  else
    echo "this Python has no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
  fi
}

# install_package STAMP PROJECT [PIP ARGUMENTS]: this checkout, editable, with the extras that PROJECT names.
install_package() {
  local stamp wanted
  stamp="$ENVIRONMENT/.installed-$1"
  wanted="$(sha256sum pyproject.toml | cut -d' ' -f1)"
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
  local python
  python="$(find_python)"
  [ -x "$PYTHON" ] || make_environment "$python"
  echo "== installing warpfront into $ENVIRONMENT"
  # Dependency groups need pip 25.1. What is imported is compiled then: half of the time would go into what never is.
  "$PYTHON" -m pip install --quiet --no-compile --upgrade 'pip>=25.1'
  "$PYTHON" -m pip install --quiet --no-compile --editable "${@:2}"
  echo "$wanted" >"$stamp"
}

# install_checks: an environment with the very torch of the CPU cell, for the tests of the checks.
install_checks() {
  local stamp wanted python
  stamp="$CHECKS_ENVIRONMENT/.installed"
  wanted="$(sha256sum pyproject.toml "$CHECKS_LOCK" | sha256sum | cut -d' ' -f1)"
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
  if ! python="$("$ENVIRONMENT/bin/uv" python find --quiet --system --no-python-downloads 3.11)"; then
    echo "the tests of the checks need Python 3.11, which $CHECKS_LOCK is for, and this machine has none" >&2
    return 1
  fi
  echo "== installing $CHECKS_LOCK into $CHECKS_ENVIRONMENT"
  "$ENVIRONMENT/bin/uv" venv --quiet --clear --python "$python" "$CHECKS_ENVIRONMENT" &&
    "$PYTHON" scripts/install-locked "$CHECKS_LOCK" "$CHECKS_PYTHON" &&
    "$PYTHON" -m pip --python "$CHECKS_PYTHON" install --quiet --no-compile --editable . --group checks &&
    echo "$wanted" >"$stamp"
}

confirm() {
  [ "${YES:-}" = 1 ] && return
  local answer
  read -r -p "$1 [y/N] " answer
  [ "$answer" = y ]
}

# What the tests of the report's page open it in. Where it cannot be had, they say that they were skipped.
install_browser() {
  if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then return; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && confirm "install Debian's chromium with apt-get?"; then
    echo "== installing chromium"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq chromium chromium-driver >/dev/null ||
      echo "chromium could not be installed: the page is not opened in a browser" >&2
  fi
}

start_engine() {
  if "$PYTHON" -m warpfront doctor --json >/dev/null 2>&1; then return; fi
  echo "== no usable container engine: starting warpfront's own"
  "$PYTHON" -m warpfront engine start
}
