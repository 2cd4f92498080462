"""Reservations of gangs as text."""

from __future__ import annotations

import pytest

from windlass.engine.decision import Bind
from windlass.model.records import gang_reservation


@pytest.mark.parametrize("members", [1, 500])
def test_the_time_of_a_reservation_is_read_without_its_places(members: int) -> None:
    binds = [
        Bind(task=f"default/g-{i}", node=f"node-{i:04d}", uid=f"{i:08x}-1111", group="default/g")
        for i in range(members)
    ]
    text = gang_reservation.encode(binds, 1_767_268_800.0)
    assert text is not None
    whole = gang_reservation.decode(text)
    assert whole is not None
    assert len(whole.seats) == members
    assert gang_reservation.decided_at(text) == whole.at == 1_767_268_800.0
    assert text.startswith("z:") is (members > 1)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"at": 1}', '{"at": "noon"}', "z:", "z:AAAA"])
def test_a_text_that_is_no_reservation_has_no_time(text: str) -> None:
    assert gang_reservation.decided_at(text) is None
    assert gang_reservation.decode(text) is None
