"""``kits.event_loop``: uvloop is used where it is, and nobody needs it."""

from __future__ import annotations

import asyncio
import sys

import pytest

from windlass.kits.tasks import run_event_loop, until_first


async def whose() -> str:
    return type(asyncio.get_running_loop()).__module__


@pytest.mark.parametrize("there", [True, False])
def test_the_loop_is_uvloops_where_that_is_installed(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not there:
        monkeypatch.setitem(sys.modules, "uvloop", None)  # importing it fails
    assert run_event_loop(whose()).startswith("uvloop" if there else "asyncio")


def test_what_fails_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails() -> None:
        raise KeyError("missing")

    with pytest.raises(KeyError, match="missing"):
        run_event_loop(fails())
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(KeyError, match="missing"):
        run_event_loop(fails())


async def test_the_first_that_ends_ends_the_others_and_its_error_is_raised() -> None:
    ended = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await until_first(endless(), failing())
    await until_first(endless(), asyncio.sleep(0))
    assert ended == ["endless", "endless"]
