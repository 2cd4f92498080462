"""Error codes: documented, all of them."""

from __future__ import annotations

import re
from pathlib import Path

import windlass
from windlass.api import error_codes


def test_every_code_in_the_source_is_documented() -> None:
    root = Path(windlass.__file__).parent
    used: dict[str, str] = {}
    for path in root.rglob("*.py"):
        if path.name == "error_codes.py":
            continue
        for code in re.findall(r'"(WL-[A-Z]+(?:-[A-Z0-9]+)*)"', path.read_text()):
            used.setdefault(code, str(path.relative_to(root)))
    assert used
    missing = {code: where for code, where in used.items() if code not in error_codes.CODES}
    assert not missing
    for code in error_codes.CODES.values():
        assert code.title
        assert len(code.text) > 20, code.code
        assert code.exit_status in error_codes.EXIT_MEANINGS
