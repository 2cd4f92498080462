"""Pages of the documentation as topics of ``windlass docs``.

A wheel contains the pages in ``windlass/manual``; a checkout has them in ``docs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
PLACES = (_PACKAGE / "manual", _PACKAGE.parents[1] / "docs")
"""Directories that may contain the pages; the first that exists counts."""
SECTIONS = ("start", "guides", "concepts", "operations", "reference", "decisions")
"""Directories of pages. If two have a page of one name, the earlier one has the short topic."""
_INDEXES = ("README", "index")


@dataclass(frozen=True, slots=True)
class ManualPage:
    """One page. ``topic``: its name for ``windlass docs``, unique among all pages."""

    topic: str
    path: Path

    @property
    def title(self) -> str:
        """First heading of the page, read from its file."""
        for line in self.path.read_text().splitlines():
            if line.startswith("# "):
                return line.removeprefix("# ").strip()
        return self.path.stem


class Manual:
    """All pages below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def pages(self) -> Mapping[str, ManualPage]:
        """Pages by topic, in the order of the sections."""
        found: dict[str, ManualPage] = {}
        for section in SECTIONS:
            for path in sorted((self._root / section).rglob("*.md")):
                short = path.parent.name if path.stem in _INDEXES else path.stem
                topic = short if short not in found else f"{section}/{path.stem}"
                found[topic] = ManualPage(topic, path)
        return found

    def page(self, topic: str) -> ManualPage | None:
        """Return the page of a topic, of a path such as ``guides/placement``, or of a decision's number."""
        name = topic.removeprefix("docs/").removesuffix(".md").lower()
        if name in self.pages:
            return self.pages[name]
        for page in self.pages.values():
            relative = page.path.relative_to(self._root).with_suffix("").as_posix()
            if name == relative or (name.isdigit() and page.path.stem.startswith(f"{int(name):04d}-")):
                return page
        return None


def installed() -> Manual | None:
    """Return the pages that came with this installation; ``None`` without any."""
    root = next((place for place in PLACES if (place / "concepts").is_dir()), None)
    return Manual(root) if root else None
