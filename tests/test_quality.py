"""What ``make check`` asks for holds in every test run, and files and functions stay readable in one go.

The tools are the ones of the virtual environment that runs the tests.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "lab" / "src").rglob("*.py")])
CHECKED = ("src", "lab", "tests", "benchmarks", "tools", "examples")
GIVEN = ROOT / "tests" / "cases" / "run_cases.py"
"""The runner of the scheduling cases, as it came with them."""
OWN = sorted(file for place in CHECKED for file in (ROOT / place).rglob("*.py") if file != GIVEN)
MOST_FILE_LINES = 800
MOST_FUNCTION_LINES = 60


def run_tool(name: str, *arguments: str) -> None:
    """Run one tool in the project's folder; what it printed is the failure."""
    binary = Path(sys.executable).parent / name
    if not binary.exists():
        pytest.skip(f"{name} is not installed beside {sys.executable}")
    done = subprocess.run([binary, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"


@dataclass(frozen=True, slots=True)
class Module:
    """A source file, as far as the tests below look at it."""

    classes: tuple[str, ...]
    """Names of the public classes."""
    functions: tuple[tuple[int, str, int], ...]
    """First line, name and number of lines of each function."""
    documented: bool
    """False: there is code and no docstring."""


def module(file: Path) -> Module:
    text = file.read_text()
    tree = ast.parse(text)
    return Module(
        tuple(n.name for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")),
        tuple(
            (node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        documented=not text.strip() or bool(ast.get_docstring(tree)),
    )


@pytest.fixture(scope="module")
def modules() -> dict[Path, Module]:
    """All source files, each parsed once."""
    return {file: module(file) for file in OWN}


def test_format() -> None:
    run_tool("ruff", "format", "--check", "--no-cache", *CHECKED)


def test_lint() -> None:
    run_tool("ruff", "check", "--no-cache", *CHECKED)


def test_layers() -> None:
    run_tool("lint-imports", "--no-cache")


def test_no_two_public_classes_share_a_name(modules: dict[Path, Module]) -> None:
    places: dict[str, list[str]] = {}
    for file in SOURCES:
        for name in modules[file].classes:
            places.setdefault(name, []).append(str(file.relative_to(ROOT)))
    assert len(places) > 1000
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_types() -> None:
    run_tool("pyrefly", "check")


def test_files_stay_short() -> None:
    assert SOURCES
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in OWN}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_FILE_LINES} == {}


def test_functions_stay_short(modules: dict[Path, Module]) -> None:
    long = [
        f"{path.relative_to(ROOT)}:{line} {name}: {lines} lines"
        for path, found in modules.items()
        for line, name, lines in found.functions
        if lines > MOST_FUNCTION_LINES
    ]
    assert long == []


def test_folders_of_tests_mirror_those_of_the_rooms() -> None:
    rooms = [room.name for room in (ROOT / "src" / "windlass").iterdir() if (room / "__init__.py").exists()]
    strays = [
        str(test.relative_to(ROOT))
        for room in rooms
        for test in (ROOT / "tests" / room).rglob("test_*.py")
        if not (ROOT / "src" / "windlass" / test.parent.relative_to(ROOT / "tests")).is_dir()
    ]
    assert strays == []


def test_every_module_says_what_it_is_for(modules: dict[Path, Module]) -> None:
    assert [str(path.relative_to(ROOT)) for path in SOURCES if not modules[path].documented] == []


def is_there(name: str) -> bool:
    """Whether a dotted name leads to a module, or to words that its module has."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = (ROOT / "lab" / "src" if parts[0] == "windlass_lab" else ROOT / "src").joinpath(*parts[:end])
        source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
        if source.is_file():
            text = source.read_text()
            return all(re.search(rf"\b{word}\b", text) for word in parts[end:])
    return False


def test_docstrings_refer_to_what_is_there() -> None:
    astray = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name in re.findall(r":\w+:`~?(windlass(?:_lab)?\.[\w.]+)`", path.read_text())
        if not is_there(name)
    ]
    assert astray == []
