#!/usr/bin/env bash
# `make test`: installs what the tests need where it may, then runs them all, on one worker more than there
# are CPUs, since much is waiting (at most four; WINDLASS_TEST_WORKERS says otherwise). Extra arguments go to
# pytest.
# What takes long to get (a real Kubernetes, PyTorch) is got while the other tests run, and the tests that
# need it run when it is there. Parts that cannot be had on this machine make their tests skip by name.
set -uo pipefail
cd "$(dirname "$0")/.."
cpus=$(nproc)
workers=${WINDLASS_TEST_WORKERS:-$((cpus < 3 ? cpus + 1 : 4))}
PATH="$(tools/kubernetes/build.sh --where):$PATH"
export PATH

run() { # PYTEST-ARGUMENTS; a file's tests stay on one worker, the long files begin (tests/conftest.py)
  .venv/bin/python -m pytest -n "$workers" --dist loadfile --no-loadscope-reorder "$@"
}

# Hundreds of tests start processes of Windlass: each would compile the modules again where the environment
# forbids to keep what was compiled, as each worker would rewrite the tests' assertions.
unset PYTHONDONTWRITEBYTECODE
.venv/bin/python -m compileall -q -j 0 src lab/src tests/support
.venv/bin/python tools/rewrite_tests.py

tools/test_tools.sh small
mapfile -t late < <(tools/test_tools.sh late; tools/kubernetes/build.sh --late)
if [ ${#late[@]} = 0 ]; then
  run "$@"
  exit
fi

build_log=$(mktemp)
trap 'rm -f "$build_log"' EXIT
{ tools/test_tools.sh large; nice tools/kubernetes/build.sh; } >"$build_log" 2>&1 &
build=$!
those=$(printf ' or %s' "${late[@]}")
those=${those# or }
run -m "not ($those)" "$@"
first=$?
echo "waiting for what the other tests need: $those" >&2
wait $build || cat "$build_log" >&2
run -m "$those" "$@"
second=$?
# pytest's 5: nothing was selected, as with a path argument that holds no test of that kind
[ $first = 5 ] && first=0
[ $second = 5 ] && second=0
exit $((first > second ? first : second))
