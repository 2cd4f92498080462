"""The list of deliberate deviations is exactly what the tests use."""

from __future__ import annotations

import re
from pathlib import Path

from server_deviations import DEVIATIONS


def test_every_deviation_is_asserted_somewhere_and_has_its_reason() -> None:
    source = "".join(file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    source += "".join(file.read_text() for file in (Path(__file__).parent.parent / "e2e").glob("test_*.py"))
    used = set(re.findall(r'deviates\(\w+, "([^"]+)"\)', source))
    assert used == set(DEVIATIONS)
    assert all(len(reason) > 20 for reason in DEVIATIONS.values())
