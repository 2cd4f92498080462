"""Size of an installation: megabytes and packages, of the wheel in an empty virtual environment.

``python -m benchmarks.install [-o json]``. NumPy is counted separately, because users
of such clusters have it already. Byte code that Python writes on first use and pip
itself are not counted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL_MEGABYTES = 40.0
GOAL_PACKAGES = 20
_APART = ("numpy", "numpy.libs")
_NOT_OURS = ("pip", "setuptools", "pkg_resources", "wheel", "_distutils_hack", "distutils-precedence.pth")


def build_wheel(folder: Path) -> Path:
    """Raises ``RuntimeError`` with pip's words if it cannot be built."""
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)])
    (wheel,) = folder.glob("windlass-*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> float:
    """Seconds that pip took, with whatever it has in its cache."""
    venv.create(folder, with_pip=True)
    begin = time.perf_counter()
    _run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile", str(wheel)])
    return time.perf_counter() - begin


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def sizes(folder: Path) -> dict[str, int]:
    """Bytes per entry of ``site-packages``, metadata folders under their package."""
    (site,) = folder.glob("lib/python*/site-packages")
    found: dict[str, int] = {}
    for entry in site.iterdir():
        name = entry.name.split("-")[0] if entry.name.endswith(".dist-info") else entry.name
        if name in _NOT_OURS or name == "__pycache__":
            continue
        files = [entry] if entry.is_file() else [path for path in entry.rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files if path.suffix != ".pyc")
        found[name] = found.get(name, 0) + size
    return found


def packages(folder: Path) -> list[str]:
    """Return the packages besides Windlass, NumPy and pip."""
    (site,) = folder.glob("lib/python*/site-packages")
    names = {entry.name.split("-")[0].lower() for entry in site.glob("*.dist-info")}
    return sorted(names - {"windlass", "numpy", *_NOT_OURS})


def measure() -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="windlass-install-") as text:
        folder = Path(text)
        wheel = build_wheel(folder)
        seconds = install(wheel, folder / "venv")
        by_entry = sizes(folder / "venv")
        found = packages(folder / "venv")
        version = _run([str(folder / "venv" / "bin" / "windlass"), "--version"]).strip()
    total = sum(size for name, size in by_entry.items() if name not in _APART) / 1e6
    largest = sorted(
        ((size / 1e6, name) for name, size in by_entry.items() if name not in _APART), reverse=True
    )
    return {
        "version": version,
        "install_seconds": seconds,
        "megabytes": {"value": total, "goal": GOAL_MEGABYTES, "ratio": total / GOAL_MEGABYTES},
        "packages": {"value": len(found), "goal": GOAL_PACKAGES, "ratio": len(found) / GOAL_PACKAGES},
        "largest_megabytes": {name: round(size, 2) for size, name in largest[:8]},
        "names": found,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Size of an installation.")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    found = measure()
    if given.output == "json":
        print(json.dumps(found, indent=1))
        return 0
    for name, unit in (("megabytes", "MB beyond NumPy"), ("packages", "packages beyond NumPy")):
        row = found[name]
        assert isinstance(row, dict)
        print(f"{row['value']:7.1f} {unit:<22} goal {row['goal']:5.0f}   ratio {row['ratio']:.2f}")
    print(f"{found['install_seconds']:7.1f} s to install; largest: {found['largest_megabytes']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
