"""Comparison of an audit log with the chart's roles: requests, accounts, and missing rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import audited_rights


def entry(who: str, verb: str, resource: str, **target: Any) -> dict[str, Any]:
    """Return an audit entry; ``who``: an account of the chart, or ``agent:NAME`` for a
    user agent."""
    agent = who.removeprefix("agent:")
    account = f"system:serviceaccount:windlass-system:{who}"
    named = {"admin": who.startswith("agent:")}
    return {
        "user": {"username": "admin" if named["admin"] else account},
        "userAgent": agent if named["admin"] else "anything",
        "verb": verb,
        "objectRef": {"resource": resource, **target},
        "responseStatus": {"code": 200},
    }


def read(tmp_path: Path, *entries: dict[str, Any]) -> list[audited_rights.Asked]:
    log = tmp_path / "audit.log"
    log.write_text("".join(json.dumps(one) + "\n" for one in entries) + '{"cut off')
    return list(audited_rights.asked(log))


def test_a_part_is_told_by_its_account_or_its_agent(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        entry("windlass-scheduler", "create", "pods", subresource="binding", namespace="a", name="p"),
        entry("windlass-scheduler", "create", "pods", subresource="binding", namespace="a", name="q"),
        entry("agent:windlass-controllers", "watch", "jobs", apiGroup="batch.volcano.sh"),
        entry("agent:kubectl", "delete", "nodes", name="n"),
    )
    assert [one.right for one in found] == [
        ("scheduler", "", "pods/binding", "create"),
        ("controllers", "batch.volcano.sh", "jobs", "watch"),
    ]
    assert audited_rights.denied(found) == []


def test_what_no_rule_covers_is_found(tmp_path: Path) -> None:
    refused = [
        entry("windlass-scheduler", "get", "secrets", namespace="a", name="s"),
        entry("windlass-scheduler", "patch", "nodes", name="n"),  # the controllers may
        entry("windlass-scheduler", "patch", "configmaps", namespace="team", name="windlass-run-times"),
        entry("windlass-scheduler", "patch", "configmaps", namespace="windlass-system", name="other"),
        entry(
            "windlass-controllers",
            "update",
            "leases",
            apiGroup="coordination.k8s.io",
            namespace="windlass-system",
            name="windlass-scheduler",
        ),
    ]
    found = read(tmp_path, *refused)
    assert len(audited_rights.denied(found)) == len(refused)


def test_what_a_role_gives_holds_in_its_namespace_and_for_its_names(tmp_path: Path) -> None:
    lease = {"apiGroup": "coordination.k8s.io", "name": "windlass-scheduler"}
    found = read(
        tmp_path,
        entry("windlass-scheduler", "update", "leases", namespace="windlass-system", **lease),
        entry("agent:windlass-scheduler", "update", "leases", namespace="kube-system", **lease),
        entry(
            "windlass-scheduler",
            "patch",
            "configmaps",
            namespace="windlass-system",
            name="windlass-run-times",
        ),
    )
    assert audited_rights.denied(found) == []
