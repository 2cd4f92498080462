"""A server of its own for every test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from server_in_process import Api


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with Api() as opened:
        yield opened
