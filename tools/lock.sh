#!/usr/bin/env bash
# Resolves requirements-dev.lock: everything that development and continuous integration install, with hashes.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install -q uv
.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-annotate --group dev --custom-compile-command "make lock" -o requirements-dev.lock pyproject.toml tools/build.in
# What the image installs: the same versions with the extras "otel" and "uvloop", without the tools of development.
.venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-annotate --extra otel --extra uvloop --custom-compile-command "make lock" -c requirements-dev.lock -o requirements.lock pyproject.toml
# The bill of materials takes licences from the installed packages.
.venv/bin/python -m pip install -q --disable-pip-version-check -r requirements-dev.lock
.venv/bin/python tools/sbom.py
