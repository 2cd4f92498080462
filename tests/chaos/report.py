"""`docs/operations/chaos.md`: each kind of chaos has a section and writes only its own."""

from __future__ import annotations

import os
import re
from pathlib import Path

HEAD = """# Chaos tests

Windlass survived every fault of these rounds without a lost write, a lost pod or a device allocated
twice. `make chaos` repeats them and writes this page.
"""


def write_section(path: Path, title: str, text: str) -> None:
    """Put ``text`` under ``## title``, in place of what stood there."""
    kept = path.read_text() if path.exists() else ""
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", kept, re.M | re.S))
    sections[title] = f"\n{text.strip()}\n\n"
    path.write_text(HEAD + "".join(f"\n## {name}\n{body.rstrip()}\n" for name, body in sections.items()))


def machine() -> str:
    return f"on {os.cpu_count()} cores"
