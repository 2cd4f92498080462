"""Compile the tests with pytest's rewritten assertions, once for all workers.

Each worker of pytest-xdist imports all tests. In a fresh checkout every worker would
rewrite every file. pytest keeps what it rewrote next to the file, and finds there what
this tool wrote. The functions it calls are internal to pytest: if a version lacks them,
this tool says so and does nothing, and the workers rewrite the files.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"


def rewrite(files: list[Path]) -> int:
    """Rewrite the files that pytest has not compiled yet, and return their number."""
    from _pytest.assertion import rewrite as internals
    from _pytest.config import _prepareconfig

    config = _prepareconfig(["-n", "0", str(TESTS)])
    state = config.stash[internals.assertstate_key]
    written = 0
    for file in files:
        kept = internals.get_cache_dir(file) / (file.stem + internals.PYC_TAIL)
        if internals._read_pyc(file, kept, state.trace) is None and internals.try_makedirs(kept.parent):
            source_hash, code = internals._rewrite_test(file, config)
            written += internals._write_pyc(state, code, source_hash, kept)
    return written


def main() -> None:
    files = [*sorted(TESTS.rglob("test_*.py")), *sorted(TESTS.rglob("conftest.py"))]
    count = os.cpu_count() or 1
    with ProcessPoolExecutor(count) as pool:
        parts = [pool.submit(rewrite, files[one::count]) for one in range(count)]
        try:
            print(f"compiled {sum(part.result() for part in parts)} of {len(files)} test files")
        except (ImportError, AttributeError, TypeError, KeyError) as error:
            print(f"tests are not compiled ahead: this version of pytest differs: {error!r}", file=sys.stderr)


if __name__ == "__main__":
    main()
