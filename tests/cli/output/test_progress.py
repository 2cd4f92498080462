"""The bar of work that takes a while."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from windlass.cli.output.progress import progress


@dataclass
class Watched:
    """A terminal, and a clock that goes on by hand."""

    interactive: bool = True
    now: float = 100.0
    written: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        self.written.append(text)

    def monotonic(self) -> float:
        return self.now


def watched(screen: Watched) -> Any:
    return SimpleNamespace(err=screen, clock=screen)


def test_what_is_left_is_told_once_it_is_known_how_fast_it_goes() -> None:
    screen = Watched()
    with progress(watched(screen), "fifo", 200) as tell:
        assert tell is not None
        screen.now = 101.0
        tell(20)
        screen.now = 110.0
        tell(100)
        tell(100)
        screen.now = 119.5
        tell(199)
    early, half, late, cleared = screen.written
    assert early.endswith("]  10%\x1b[K")
    assert "[############............]  50%  ~10s left" in half
    assert "left" not in late
    assert cleared == "\r\x1b[K"


def test_what_comes_before_the_work_is_no_part_of_how_fast_it_goes() -> None:
    screen = Watched()
    with progress(watched(screen), "4 runs", 200) as tell:
        assert tell is not None
        for screen.now in (101.0, 104.0):
            tell(0)
        screen.now = 114.0
        tell(100)
    assert "50%  ~10s left" in screen.written[1]


def test_nobody_watches() -> None:
    screen = Watched(interactive=False)
    with progress(watched(screen), "fifo", 10) as tell:
        assert tell is None
    assert screen.written == []
