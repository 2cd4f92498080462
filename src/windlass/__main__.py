"""``windlass`` and ``python -m windlass``."""

from __future__ import annotations

import sys


def main() -> int:
    """The console script. The version is told without importing anything else."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from windlass import __version__

        try:
            print(f"windlass {__version__}", flush=True)
        except BrokenPipeError:
            from windlass.cli.terminal import discard_output

            return discard_output()
        return 0
    try:
        from windlass.cli.main import run

        return run()
    except KeyboardInterrupt:  # while it was still being read
        return 130


if __name__ == "__main__":
    sys.exit(main())
