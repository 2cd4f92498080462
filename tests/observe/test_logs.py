"""One line per record, fields included."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from windlass.observe import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    root = logging.getLogger(logs.ROOT)
    root.handlers.clear()
    root.propagate = True
    root.setLevel(logging.NOTSET)


def test_text(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    logs.get("scheduler").info("pod bound", pod="ns/a", node="n 1", empty="")
    logs.get("scheduler").debug("not shown")
    (line,) = stream.getvalue().splitlines()
    stamp, rest = line.split(" ", 1)
    assert stamp.endswith("Z")
    assert rest == 'info scheduler "pod bound" pod=ns/a node="n 1" empty=""'


def test_a_field_cannot_break_the_line(stream: io.StringIO) -> None:
    logs.configure(stream=stream)
    logs.get("x").warning("m", why='two\nlines "quoted" a=b')
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r'why="two\nlines \"quoted\" a=b"')


def test_json_with_a_traceback(stream: io.StringIO) -> None:
    logs.configure(style="json", level="error", stream=stream)
    try:
        raise ValueError("bad")
    except ValueError as error:
        logs.get("x").exception("failed", error, count=3, of={"a"})
    entry = json.loads(stream.getvalue())
    assert (entry["level"], entry["component"], entry["message"], entry["count"]) == (
        "error",
        "x",
        "failed",
        3,
    )
    assert "ValueError: bad" in entry["traceback"]


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="neither text nor json"):
        logs.configure(style="xml")
    with pytest.raises(ValueError, match="log level"):
        logs.configure(level="loud")
