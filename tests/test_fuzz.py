"""`make test` draws the same examples everywhere; `make fuzz` draws new ones and brings back what failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
PROPERTY = """
from pathlib import Path

from hypothesis import given, settings, strategies as st


@settings(max_examples=200)
@given(st.integers(0, 10**9))
def test_numbers(number):
    with open(Path(__file__).parent / "drawn.txt", "a") as drawn:
        print(number, file=drawn)
    assert number < LIMIT
"""


def drawn(
    folder: Path, *command: str, limit: int = 10**10, fuzz: bool = False, before: str = ""
) -> tuple[list[str], str, int]:
    """The numbers that one run drew, what it said, and how it ended. ``before``: a line of its conftest."""
    ours = (ROOT / "tests" / "conftest.py").read_text()
    (folder / "conftest.py").write_text(ours.replace("import os\n", f"import os\n{before}", 1))
    (folder / "test_numbers.py").write_text(PROPERTY.replace("LIMIT", str(limit)))
    (folder / "drawn.txt").unlink(missing_ok=True)
    environment = {key: text for key, text in os.environ.items() if key != "WINDLASS_FUZZ"}
    if fuzz:
        environment["WINDLASS_FUZZ"] = "1"
    done = subprocess.run(
        [*command, str(folder / "test_numbers.py")],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return (folder / "drawn.txt").read_text().split(), done.stdout + done.stderr, done.returncode


def test_this_run_draws_what_every_run_draws() -> None:
    fuzz = bool(os.environ.get("WINDLASS_FUZZ"))
    assert settings.default is not None
    assert settings.default.derandomize is not fuzz
    assert (settings.default.database is None) is not fuzz


def test_the_gate_draws_the_same_and_fuzzing_does_not(tmp_path: Path) -> None:
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    first, said, status = drawn(tmp_path, *pytest)
    assert status == 0, said
    again, _, _ = drawn(tmp_path, *pytest, "--hypothesis-seed=3")
    assert len(first) == 200
    assert again == first
    constants = ", ".join(str(number) for number in range(123456, 123556))
    (tmp_path / "another.py").write_text(f"NUMBERS = ({constants})")
    with_more, _, _ = drawn(tmp_path, *pytest, before="import another\n")
    assert with_more == first
    assert not (tmp_path / ".hypothesis" / "examples").exists()
    fresh, _, _ = drawn(tmp_path, *pytest, "--hypothesis-seed=3", fuzz=True)
    other, _, _ = drawn(tmp_path, *pytest, "--hypothesis-seed=4", fuzz=True)
    assert fresh != first
    assert fresh != other


def test_a_round_that_fails_tells_its_seed_and_can_be_had_again(tmp_path: Path) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "fuzz.py"), "--workers", "1"]
    _, said, status = drawn(tmp_path, *tool, "--seed", "5", limit=1000)
    assert status == 1
    assert "fuzz: seed 5\n" in said
    assert "@reproduce_failure(" in said
    assert "fuzz: the round of seed 5 failed; again: make fuzz SEED=5 ROUNDS=1 ONLY=" in said
    numbers, said, status = drawn(tmp_path, *tool, "--seed", "6", "--rounds", "2")
    assert status == 0, said
    assert "fuzz: seed 6\n" in said
    assert "fuzz: seed 7\n" in said
    assert len(numbers) >= 400
