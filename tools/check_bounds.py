"""Run a job with the lowest and with the newest versions of the dependencies.

``pyproject.toml`` declares a lower bound for each dependency. Each set of versions is
installed by pip into a fresh virtual environment, together with a wheel of this
checkout. Then all modules are imported, and ``windlass run -- echo hi`` has to work.
Wheels are kept in ``$XDG_CACHE_HOME/windlass/bounds``. Exit status: 0 ok, 1 failed, 75
when no package index can be reached.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETS = ("lowest", "newest")
UNREACHABLE = 75
LOWEST_PYTHON = (3, 11)
"""Python for which the lowest versions have wheels."""
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)>=(?P<least>[0-9.]+)(?P<most>,<[0-9.]+)?")
_IMPORT_ALL = """
import importlib, pkgutil, windlass
for module in pkgutil.walk_packages(windlass.__path__, "windlass."):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("opentelemetry"):  # an extra
                raise
"""


class NoIndex(Exception):
    """No package index can be reached."""


class Failed(Exception):
    """A step failed; the text is its output."""


def requirements(which: str) -> list[str]:
    """Return the dependencies as pip takes them; ``lowest`` pins each to its lower bound.

    Raises ``ValueError`` for a dependency without a lower bound.
    """
    found = []
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        match = _REQUIREMENT.fullmatch(text)
        if match is None:
            raise ValueError(f"pyproject.toml: {text!r} is not NAME>=VERSION or NAME>=VERSION,<VERSION")
        found.append(f"{match['name']}=={match['least']}" if which == "lowest" else text)
    return found


def cache() -> Path:
    """Return the directory of downloaded wheels."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "windlass" / "bounds"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(*command: str, environ: dict[str, str] | None = None) -> str:
    """Return the standard output. Raises :class:`Failed` and, for pip, :class:`NoIndex`."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env=environ, cwd=ROOT
    )
    if done.returncode:
        # pip says this of each connection that fails, and then that there is no such version.
        if "Retrying (Retry(" in done.stdout + done.stderr:
            raise NoIndex(done.stderr.strip().splitlines()[0])
        raise Failed(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def pip(*arguments: str) -> str:
    """Run pip of this interpreter."""
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries", "1", *arguments)


def install(which: str, wheel: Path, folder: Path) -> None:
    """Make a virtual environment with one set of versions. Raises :class:`NoIndex`, :class:`Failed`."""
    wheels = str(cache())
    wanted = _wanted(which, wheel)
    only_wheels = ("--quiet", "--only-binary", ":all:", "--find-links", wheels)
    if which == "newest" or not _complete(wanted, wheels):
        pip("download", *only_wheels, "--dest", wheels, *wanted)
        for copy in cache().glob("windlass-*.whl"):  # that of this checkout is not worth keeping
            copy.unlink()
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    # The newest are those that were just downloaded; others in the cache are older.
    pip("--python", python, "install", *only_wheels, "--no-index", "--no-compile", *wanted)


def _wanted(which: str, wheel: Path) -> list[str]:
    return [str(wheel), *requirements(which)]


def _complete(wanted: Sequence[str], wheels: str) -> bool:
    """Return whether all wheels of a set are in the cache."""
    try:
        pip(
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--no-index",
            "--find-links",
            wheels,
            *wanted,
        )
    except Failed:
        return False
    return True


def work(folder: Path) -> None:
    """Import all modules, and run a job. Raises :class:`Failed`."""
    bin_ = folder / "bin"
    home = folder / "home"
    home.mkdir()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("WINDLASS_", "PYTHON"))},
        "HOME": str(home),
        "WINDLASS_STATE": str(folder / "state"),
        "PATH": f"{bin_}:{os.environ['PATH']}",
    }
    run(str(bin_ / "python"), "-W", "error", "-c", _IMPORT_ALL, environ=environ)
    windlass = str(bin_ / "windlass")
    try:
        said = run(windlass, "run", "--", "echo", "hi", environ=environ)
        if "hi" not in said.split():
            raise Failed(f"windlass run -- echo hi printed {said!r}")
        run(windlass, "ps", "-o", "json", environ=environ)
    finally:
        run(windlass, "down", "--purge", environ=environ)


def check(which: str, wheel: Path) -> float:
    """Return the seconds that one set took. Raises :class:`NoIndex`, :class:`Failed`."""
    begin = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="wl-"))  # short: a socket's path in it has at most 107 bytes
    try:
        install(which, wheel, folder)
        work(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return time.monotonic() - begin


def build(folder: Path) -> Path:
    """Return a wheel of this checkout. Raises :class:`Failed`."""
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("windlass-*.whl")
    return wheel


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SETS, help="default: both")
    only = parser.parse_args(arguments).only
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        for which in (only,) if only else SETS:
            try:
                seconds = check(which, wheel)
            except NoIndex as error:
                print(f"no package index can be reached: {error}", file=sys.stderr)
                return UNREACHABLE
            except Failed as error:
                print(f"{which} versions ({', '.join(requirements(which))}): {error}", file=sys.stderr)
                return 1
            print(f"{which} versions: ok ({seconds:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
