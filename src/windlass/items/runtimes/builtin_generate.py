"""Small deterministic text generator, with which a job completes anywhere without a model.

The text follows from the prompt and the name of the model alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from windlass.items.runtimes.base import RowOutcome, RuntimeContext, WorkBatch

_OPENINGS = ("Here is", "Meet", "This is", "Consider", "Discover")
_QUALITIES = ("sturdy", "light", "quiet", "bright", "simple", "elegant", "durable", "compact")
_NOUNS = ("design", "finish", "shape", "surface", "handle", "structure", "detail", "balance")
_VERBS = ("serves", "lasts", "fits", "works", "helps", "holds", "shines", "performs")
_PLACES = ("at home", "on the road", "in the office", "outdoors", "every day", "for years")
DEFAULT_WORDS = 40
"""Default of ``parameters.words``: number of words of a text."""


class GenerateRuntime:
    """Runtime ``builtin-generate``."""

    def __init__(self, context: RuntimeContext) -> None:
        parameters = context.batch.runtime.parameters
        self._words = max(1, int(parameters.get("words", DEFAULT_WORDS)))
        self._seconds = max(0.0, float(parameters.get("secondsPerItem", 0.0)))
        self._context = context

    def setup(self) -> None:
        return

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        for item in batch.left():
            started = self._context.monotonic()
            if self._seconds:
                self._context.pause(self._seconds)
            text = generate(item.prompt or str(item.row["id"]), batch.model, self._words)
            took = self._context.monotonic() - started
            yield RowOutcome(item.number, {"id": item.row["id"], "text": text}, took)

    def teardown(self) -> None:
        return


def generate(prompt: str, model: str, words: int) -> str:
    """Return a text of at most ``words`` words that depends on the arguments only."""
    state = zlib.crc32(f"{model}\0{prompt}".encode(errors="replace"))

    def pick(options: tuple[str, ...]) -> str:
        nonlocal state
        state = (state * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        return options[(state >> 8) % len(options)]

    subject = " ".join(prompt.split()[:8]).rstrip(".,:;!?")
    text = [*f"{pick(_OPENINGS)} an answer to: {subject}.".split()]
    while len(text) < words:
        sentence = f"Its {pick(_QUALITIES)} {pick(_NOUNS)} {pick(_VERBS)} {pick(_PLACES)}."
        text += sentence.split()
    return " ".join(text[:words])


class NoopRuntime:
    """Runtime ``noop``: answers at once. It measures what the platform itself costs."""

    def setup(self) -> None:
        return

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        for item in batch.left():
            yield RowOutcome(item.number, {"id": item.row["id"], "ok": True})

    def teardown(self) -> None:
        return
