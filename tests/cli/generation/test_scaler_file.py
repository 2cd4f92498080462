"""File of ``windlass generate --autoscaler``."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.cli.generation.scaler_file import MAX_BYTES, scaler_text


def test_file_with_a_derived_class_travels_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "scaler.py"
    path.write_text("import kurator_sdk\nclass Mine(kurator_sdk.AutoScaler):\n    pass\n")
    assert scaler_text(str(path)) == path.read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("x = (", r"not valid Python: .*/scaler.py, line 1: "),
        ("class Other:\n    pass\n", "has no class derived from AutoScaler"),
        ("#" * (MAX_BYTES + 1), f"has {MAX_BYTES + 1} bytes"),
    ],
)
def test_other_files_are_rejected(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "scaler.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(WindlassError, match=words):
        scaler_text(str(path))
