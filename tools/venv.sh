#!/usr/bin/env bash
# Makes the virtual environment with the locked development packages. Usage: tools/venv.sh PYTHON VENV
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 venv=$2

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "error: Windlass needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1 || echo not there)." >&2
  echo "try:   apt-get install python3 python3-venv, or make PYTHON=/path/to/python3.11" >&2
  exit 2
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing python3-venv" >&2
    patient=(-q -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300)
    apt-get "${patient[@]}" update >/dev/null || true # what is there may do
    DEBIAN_FRONTEND=noninteractive apt-get "${patient[@]}" install -y python3-venv >/dev/null
  else
    echo "error: '$python' has no module venv." >&2
    echo "try:   sudo apt-get install python3-venv" >&2
    exit 2
  fi
fi
echo "setting up $venv (once)" >&2
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install -q --disable-pip-version-check --retries 10 --timeout 60 -r requirements-dev.lock
"$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./lab
