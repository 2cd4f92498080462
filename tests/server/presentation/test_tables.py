"""Tables: kubectl's columns and words, in answers and in watches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.kits.clock import FakeClock
from windlass.server.presentation import tables_custom
from windlass.server.presentation.tables import TablePresenter, table_of
from windlass.store.records import Entry, Op

Obj = dict[str, Any]
CLOCK = FakeClock()  # 2026-01-01T12:00:00Z
MADE = "2026-01-01T11:55:00Z"


def cells(resource: Resource, obj: Obj) -> dict[str, Any]:
    table = table_of(resource)
    obj.setdefault("metadata", {}).setdefault("name", "a")
    obj["metadata"].setdefault("creationTimestamp", MADE)
    values = table.cells(obj, CLOCK.now())
    assert len(values) == len(table.columns)
    return {column.name: value for column, value in zip(table.columns, values, strict=True)}


def status(name: str = "c", ready: bool = False, restarts: int = 0, **state: Any) -> Obj:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state}


def pod(phase: str = "Running", *statuses: Obj, init: list[Obj] | None = None, **more: Any) -> Obj:
    count = max(len(statuses), 1)
    spec = {"containers": [{"name": f"c{i}"} for i in range(count)]}
    body: Obj = {"spec": spec, "status": {"phase": phase, "containerStatuses": list(statuses)}}
    if init is not None:
        spec["initContainers"] = [{"name": one["name"]} for one in init]
        body["status"]["initContainerStatuses"] = init
    body["metadata"] = more.pop("metadata", {})
    body["status"] |= more
    return body


RUNNING = {"running": {"startedAt": MADE}}
ENDED_AT = "2026-01-01T11:59:00Z"


@pytest.mark.parametrize(
    ("body", "shown", "ready"),
    [
        (pod("Pending"), "Pending", "0/1"),
        (pod("Running", status(ready=True, **RUNNING)), "Running", "1/1"),
        (pod("Pending", status(waiting={"reason": "ContainerCreating"})), "ContainerCreating", "0/1"),
        (pod("Running", status(waiting={"reason": "CrashLoopBackOff"})), "CrashLoopBackOff", "0/1"),
        (pod("Succeeded", status(terminated={"reason": "Completed", "exitCode": 0})), "Completed", "0/1"),
        (pod("Failed", status(terminated={"exitCode": 3})), "ExitCode:3", "0/1"),
        (pod("Failed", status(terminated={"signal": 9, "exitCode": 137})), "Signal:9", "0/1"),
        (pod("Failed", status(terminated={"reason": "OOMKilled", "exitCode": 137})), "OOMKilled", "0/1"),
        (pod("Failed", reason="Evicted"), "Evicted", "0/1"),
        (
            pod(
                "Running",
                status("c0", ready=True, **RUNNING),
                status("c1", terminated={"reason": "Completed", "exitCode": 0}),
                conditions=[{"type": "Ready", "status": "False"}],
            ),
            "NotReady",
            "1/2",
        ),
        (
            pod("Running", status(ready=True, **RUNNING), metadata={"deletionTimestamp": MADE}),
            "Terminating",
            "1/1",
        ),
        (
            pod(
                "Succeeded", status(terminated={"reason": "Completed"}), metadata={"deletionTimestamp": MADE}
            ),
            "Completed",
            "0/1",
        ),
        (
            pod("Running", reason="NodeLost", metadata={"deletionTimestamp": MADE}),
            "Unknown",
            "0/1",
        ),
        (
            pod(
                "Pending",
                conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            ),
            "SchedulingGated",
            "0/1",
        ),
        (pod("Pending", init=[status("i", running={})]), "Init:0/1", "0/1"),
        (
            pod("Pending", init=[status("i", terminated={"exitCode": 0}), status("j", running={})]),
            "Init:1/2",
            "0/1",
        ),
        (pod("Pending", init=[status("i", terminated={"exitCode": 2})]), "Init:ExitCode:2", "0/1"),
        (
            pod("Pending", init=[status("i", terminated={"exitCode": 2, "reason": "Error"})]),
            "Init:Error",
            "0/1",
        ),
        (
            pod("Pending", init=[status("i", waiting={"reason": "CrashLoopBackOff"})]),
            "Init:CrashLoopBackOff",
            "0/1",
        ),
        (pod("Pending", init=[status("i", waiting={"reason": "PodInitializing"})]), "Init:0/1", "0/1"),
    ],
)
def test_the_status_of_a_pod(body: Obj, shown: str, ready: str) -> None:
    row = cells(resources.PODS, body)
    assert (row["Status"], row["Ready"]) == (shown, ready)


def test_restarts() -> None:
    last = {"lastState": {"terminated": {"finishedAt": ENDED_AT}}}
    row = cells(resources.PODS, pod("Running", {**status(ready=True, restarts=3, **RUNNING), **last}))
    assert row["Restarts"] == "3 (60s ago)"
    assert cells(resources.PODS, pod("Running", status(restarts=2, **RUNNING)))["Restarts"] == "2"
    assert row["Age"] == "5m"


def test_a_sidecar_counts_as_a_container() -> None:
    body = pod(
        "Running",
        status("c0", ready=True, **RUNNING),
        init=[{**status("s", ready=True, restarts=1, **RUNNING), "started": True}],
    )
    body["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    row = cells(resources.PODS, body)
    assert (row["Ready"], row["Restarts"]) == ("2/2", "1")


def test_wide_columns_of_pods() -> None:
    body = pod(
        "Running",
        status(ready=True, **RUNNING),
        podIPs=[{"ip": "10.0.0.1"}],
        nominatedNodeName="n2",
        conditions=[{"type": "x/y", "status": "True"}],
    )
    body["spec"] |= {"nodeName": "n1", "readinessGates": [{"conditionType": "x/y"}, {"conditionType": "z"}]}
    row = cells(resources.PODS, body)
    assert (row["IP"], row["Node"], row["Nominated Node"], row["Readiness Gates"]) == (
        "10.0.0.1",
        "n1",
        "n2",
        "1/2",
    )


def test_nodes() -> None:
    node = {
        "metadata": {"labels": {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/gpu": ""}},
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1", "osImage": "Debian"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
        },
    }
    row = cells(resources.NODES, node)
    assert row["Status"] == "Ready,SchedulingDisabled"
    assert row["Roles"] == "gpu,worker"
    assert (row["Internal-IP"], row["External-IP"], row["Kernel-Version"]) == (
        "10.0.0.9",
        "<none>",
        "<unknown>",
    )
    assert cells(resources.NODES, {})["Status"] == "Unknown"
    waiting = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert cells(resources.NODES, waiting)["Status"] == "NotReady"


def test_services_and_endpoints() -> None:
    spec = {
        "type": "NodePort",
        "clusterIP": "10.96.0.5",
        "ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}],
        "selector": {"b": "2", "a": "1"},
    }
    row = cells(resources.SERVICES, {"spec": spec})
    assert (row["Port(s)"], row["Selector"], row["External-IP"]) == (
        "80:30080/TCP,53/UDP",
        "a=1,b=2",
        "<none>",
    )
    assert cells(resources.SERVICES, {"spec": {"type": "LoadBalancer"}})["External-IP"] == "<pending>"
    assert (
        cells(resources.SERVICES, {"spec": {"type": "ExternalName", "externalName": "x"}})["External-IP"]
        == "x"
    )
    subset = {"addresses": [{"ip": f"10.0.0.{i}"} for i in range(4)], "ports": [{"port": 80}]}
    shown = cells(resources.ENDPOINTS, {"subsets": [subset]})["Endpoints"]
    assert shown == "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 1 more..."
    assert cells(resources.ENDPOINTS, {})["Endpoints"] == "<none>"
    assert cells(resources.ENDPOINT_SLICES, {})["Ports"] == "<unset>"


def test_configuration() -> None:
    assert cells(resources.CONFIG_MAPS, {"data": {"a": ""}, "binaryData": {"b": ""}})["Data"] == 2
    assert cells(resources.SECRETS, {"type": "Opaque"})["Data"] == 0
    assert cells(resources.LEASES, {"spec": {"holderIdentity": "me"}})["Holder"] == "me"
    row = cells(resources.PRIORITY_CLASSES, {"value": 5, "preemptionPolicy": "Never"})
    assert (row["Value"], row["Global-Default"], row["PreemptionPolicy"]) == (5, False, "Never")
    quota = {"status": {"hard": {"pods": "5", "limits.cpu": "1", "requests.cpu": "2"}, "used": {"pods": "1"}}}
    row = cells(resources.RESOURCE_QUOTAS, quota)
    assert (row["Request"], row["Limit"]) == ("pods: 1/5, requests.cpu: 0/2", "limits.cpu: 0/1")
    assert cells(resources.LIMIT_RANGES, {})["Created At"] == MADE
    budget = cells(resources.POD_DISRUPTION_BUDGETS, {"spec": {"minAvailable": "50%"}})
    assert (budget["Min Available"], budget["Max Unavailable"], budget["Allowed Disruptions"]) == (
        "50%",
        "N/A",
        0,
    )
    assert cells(resources.SERVICE_ACCOUNTS, {}) == {"Name": "a", "Age": "5m"}
    assert cells(resources.NAMESPACES, {"status": {"phase": "Active"}})["Status"] == "Active"


def test_storage() -> None:
    claim = {
        "spec": {"volumeName": "v", "storageClassName": "fast", "volumeMode": "Block"},
        "status": {
            "phase": "Bound",
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        },
    }
    row = cells(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    assert (row["Status"], row["Capacity"], row["Access Modes"]) == ("Bound", "1Gi", "RWO,RWX")
    volume = {"spec": {"claimRef": {"namespace": "n", "name": "c"}, "capacity": {"storage": "1Gi"}}}
    row = cells(resources.PERSISTENT_VOLUMES, volume)
    assert (row["Claim"], row["VolumeAttributesClass"]) == ("n/c", "<unset>")


def test_events_of_both_groups() -> None:
    event = {
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        "type": "Warning",
        "reason": "Failed",
        "message": "no room \n",
        "source": {"component": "windlass", "host": "n1"},
        "firstTimestamp": "2026-01-01T11:00:00Z",
        "lastTimestamp": ENDED_AT,
        "count": 4,
    }
    row = cells(resources.EVENTS, event)
    assert (row["Last Seen"], row["First Seen"], row["Object"]) == ("60s", "60m", "pod/p")
    assert (row["Source"], row["Message"], row["Count"]) == ("windlass, n1", "no room", 4)
    newer = {
        "regarding": {"kind": "Job", "name": "j"},
        "note": "x",
        "eventTime": "2026-01-01T11:00:00.000000Z",
        "series": {"count": 9, "lastObservedTime": "2026-01-01T11:59:00.000000Z"},
        "reportingController": "c",
    }
    row = cells(resources.EVENTS_V1, newer)
    assert (row["Object"], row["Last Seen"], row["Count"], row["Source"]) == ("job/j", "60s", 9, "c")


def test_custom_kinds_show_their_columns() -> None:
    row = cells(
        resources.POD_GROUPS, {"spec": {"minMember": 2, "queue": "q"}, "status": {"phase": "Running"}}
    )
    assert row == {
        "Name": "a",
        "STATUS": "Running",
        "minMember": 2,
        "RUNNINGS": None,
        "AGE": "5m",
        "QUEUE": "q",
    }
    job = cells(resources.VOLCANO_JOBS, {"status": {"state": {"phase": "Pending"}, "minAvailable": 4}})
    assert (job["STATUS"], job["minAvailable"]) == ("Pending", 4)
    assert cells(resources.VOLCANO_JOBS_V1BETA1, {}).keys() == job.keys()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (".a.b", 1),
        (".list[1].x", "y"),
        (r".with\.dots", "d"),
        ("['with.dots']", "d"),
        (".none.at.all", None),
        (".list[9]", None),
        (".list[-1:].x", "y"),
        (".list[-1].x", "y"),
        (".list[:1]", 0),
        (".list[*].x", "y"),
        ('.list[?(@.x=="y")].x', "y"),
        ('.list[?(@.x == "z")].x', None),
        (".a[0]", None),
    ],
)
def test_paths(path: str, value: Any) -> None:
    obj = {"a": {"b": 1}, "list": [0, {"x": "y"}], "with.dots": "d"}
    assert tables_custom.lookup(obj, tables_custom.parse_path(path)) == value


def test_column_path_with_expressions_is_rejected() -> None:
    with pytest.raises(ValueError, match="not understood"):
        tables_custom.parse_path(".conditions[?(@.age>3)].status")


def test_columns_of_any_type() -> None:
    table = tables_custom.table_of(
        [
            {"name": "Flag", "type": "string", "jsonPath": ".flag"},
            {"name": "When", "type": "date", "jsonPath": ".when"},
            {"name": "N", "type": "number", "jsonPath": ".n", "priority": 1},
        ]
    )
    assert table.cells({"metadata": {"name": "x"}, "flag": True, "n": 1.5}, CLOCK.now()) == [
        "x",
        "true",
        "<unknown>",
        1.5,
    ]
    assert [column.wide for column in table.columns] == [False, False, False, True]
    assert [c.name for c in tables_custom.table_of([]).columns] == ["Name", "Age"]


# --- the documents ------------------------------------------------------------------------------------


def entry(obj: Obj, rv: int = 7) -> Entry:
    return Entry("default", obj["metadata"]["name"], rv, 1, json.dumps(obj).encode(), {}, ())


CONFIG = {"metadata": {"resourceVersion": "7", "name": "c", "creationTimestamp": MADE}, "data": {"a": "b"}}


def presenter(include: str = "", resource: Resource = resources.CONFIG_MAPS) -> TablePresenter:
    return TablePresenter(resource, CLOCK, include=include)


def test_a_single_object_and_a_list() -> None:
    one = json.loads(presenter().single(entry(CONFIG)))
    assert (one["kind"], one["apiVersion"], one["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "7"},
    )
    assert one["rows"] == [
        {
            "cells": ["c", 1, "5m"],
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": CONFIG["metadata"],
            },
        }
    ]
    table = presenter()
    whole = (
        table.open_list({"resourceVersion": "9", "continue": "x"})
        + table.items([entry(CONFIG)] * 2)
        + table.close_list()
    )
    listed = json.loads(whole)
    assert listed["metadata"] == {"resourceVersion": "9", "continue": "x"}
    assert len(listed["rows"]) == 2
    assert [column["name"] for column in listed["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert json.loads(table.open_list({}) + table.items([]) + table.close_list())["rows"] == []


@pytest.mark.parametrize(
    ("include", "kind"), [("None", None), ("Object", "ConfigMap"), ("Metadata", "PartialObjectMetadata")]
)
def test_rows_include_the_requested_object(include: str, kind: str | None) -> None:
    (row,) = json.loads(presenter(include).single(entry(CONFIG)))["rows"]
    assert (row["object"] or {}).get("kind") == kind


def test_unknown_include_is_rejected() -> None:
    with pytest.raises(StatusError, match="must be 'Metadata', 'Object', 'None', or empty") as caught:
        presenter("Everything")
    assert caught.value.code == 400


def test_a_watch_sends_the_columns_once() -> None:
    table = presenter()
    first = json.loads(table.line(Op.ADDED, entry(CONFIG), first=True))
    assert (first["type"], first["object"]["kind"]) == ("ADDED", "Table")
    assert first["object"]["columnDefinitions"]
    later = json.loads(table.line(Op.DELETED, entry(CONFIG), first=False))
    assert later["object"]["columnDefinitions"] is None


def test_bookmarks_are_tables_too() -> None:
    mark = json.loads(presenter().bookmark(12, initial_end=True, first=False))
    metadata = {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"] == metadata
    (row,) = mark["object"]["rows"]
    assert row["cells"] == ["", 0, "<unknown>"]
    assert row["object"]["metadata"] == metadata
    for resource in resources.ALL:
        json.loads(presenter(resource=resource).bookmark(1, initial_end=False, first=True))


def test_finished_pods_have_a_row_condition() -> None:
    done = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Failed"}}
    (row,) = json.loads(presenter(resource=resources.PODS).single(entry(done)))["rows"]
    assert row["conditions"][0]["reason"] == "Failed"
