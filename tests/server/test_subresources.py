"""Table of subresources: one entry serves requests, discovery and OpenAPI."""

from __future__ import annotations

from dataclasses import replace

import pytest
from server_in_process import Api

from windlass.api import resources
from windlass.api.resources import PODS
from windlass.server.subresources import SUBRESOURCES, served


def declared() -> set[str]:
    return {name for resource in resources.ALL for name in resource.subresources}


def test_every_declared_subresource_has_an_entry_and_no_entry_is_unused() -> None:
    assert declared() == set(SUBRESOURCES)


def test_subresource_without_an_entry_is_left_out_of_discovery() -> None:
    kind = replace(PODS, subresources=("status", "resize", "log"))
    assert [name for name, _ in served(kind)] == ["log", "status"]


async def test_request_for_a_subresource_without_an_entry_gets_404(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(SUBRESOURCES, "status")  # type: ignore[arg-type]
    answer = await api.get(PODS.path("default", "p", "status"))
    assert (answer.status, answer.reason) == (404, "NotFound")


def test_verbs_and_bodies_follow_from_the_entry() -> None:
    assert SUBRESOURCES["status"].verbs == ["get", "patch", "update"]
    assert SUBRESOURCES["status"].is_view
    assert not SUBRESOURCES["log"].is_view
    assert SUBRESOURCES["eviction"].body == ("policy", "v1", "Eviction")
