"""Kinds of dynamic resource allocation: both servers take and refuse the same, in the same words.

Selectors are compiled by either server for itself, so broken ones are left out here: the embedded server serves a part
of CEL and says what it does not.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from clusters import MERGE, Answer
from server_pair import Pair

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]
GROUP = "/apis/resource.k8s.io/v1"
SELECTOR = {"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def exactly(name: str = "gpu", **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu.nvidia.com", **fields}}


def claim(*requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    return {"spec": {"devices": {"requests": list(requests), **devices}}}


def bearing(**toleration: Any) -> dict[str, Any]:
    return claim(exactly(tolerations=[toleration]))


def devices(**spec: Any) -> dict[str, Any]:
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    return {"spec": {"driver": "gpu.nvidia.com", "pool": pool, **spec}}


def giving(*, shared: bool = True, value: str = "80Gi", **policy: Any) -> tuple[str, dict[str, Any]]:
    """A slice with a device whose memory may be asked for like this."""
    capacity = {"memory": {"value": value, "requestPolicy": policy}}
    one = {"name": "gpu-0", "allowMultipleAllocations": shared, "capacity": capacity}
    return "resourceslices", devices(nodeName="n", devices=[one])


def attached(ready: list[str], failed: list[str]) -> tuple[str, dict[str, Any]]:
    """A slice with a device that is made ready for who gets it."""
    one = {"name": "gpu-0", "bindingConditions": ready, "bindingFailureConditions": failed}
    return "resourceslices", devices(nodeName="n", devices=[one])


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "claim": ("resourceclaims", claim(exactly())),
    "count": ("resourceclaims", claim(exactly(count=2, selectors=[SELECTOR]))),
    "all": ("resourceclaims", claim(exactly(allocationMode="All"))),
    "no request": ("resourceclaims", {"spec": {"devices": {"requests": []}}}),
    "first available": (
        "resourceclaims",
        claim({"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}),
    ),
    "neither": ("resourceclaims", claim({"name": "a"})),
    "no class": ("resourceclaims", claim({"name": "a", "exactly": {}})),
    "a class with a slash": ("resourceclaims", claim(exactly(deviceClassName="nvidia.com/gpu"))),
    "a bad name": ("resourceclaims", claim(exactly("A"))),
    "two of one name": ("resourceclaims", claim(exactly(), exactly())),
    "a count below one": ("resourceclaims", claim(exactly(count=-1))),
    "all and a count": ("resourceclaims", claim(exactly(allocationMode="All", count=1))),
    "an unknown mode": ("resourceclaims", claim(exactly(allocationMode="Some"))),
    "no cel": ("resourceclaims", claim(exactly(selectors=[{}]))),
    "devices that agree": (
        "resourceclaims",
        claim(exactly(), constraints=[{"matchAttribute": "x.com/root"}]),
    ),
    "a constraint of no request": (
        "resourceclaims",
        claim(exactly(), constraints=[{"matchAttribute": "x.com/root", "requests": ["gpu", "nic"]}]),
    ),
    "a constraint of an alternative": (
        "resourceclaims",
        claim(
            {"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]},
            constraints=[{"distinctAttribute": "x.com/root", "requests": ["a/x", "a/y"]}],
        ),
    ),
    "an empty constraint": ("resourceclaims", claim(exactly(), constraints=[{}])),
    "an attribute without domain": (
        "resourceclaims",
        claim(exactly(), constraints=[{"matchAttribute": "root"}]),
    ),
    "a toleration": ("resourceclaims", bearing(key="x.com/ecc", value="9")),
    "a toleration of all": ("resourceclaims", bearing(operator="Exists", effect="NoExecute")),
    "a toleration with a value too many": ("resourceclaims", bearing(operator="Exists", value="9")),
    "an unknown operator": ("resourceclaims", bearing(operator="In")),
    "an unknown effect": ("resourceclaims", bearing(operator="Exists", effect="Never")),
    "administration without leave": ("resourceclaims", claim(exactly(adminAccess=True))),
    "a template of administration": (
        "resourceclaimtemplates",
        {"spec": {"spec": claim(exactly(), exactly("watch", adminAccess=True))["spec"]}},
    ),
    "template": ("resourceclaimtemplates", {"spec": {"spec": claim(exactly())["spec"]}}),
    "class": ("deviceclasses", {"spec": {"selectors": [SELECTOR]}}),
    "slice": ("resourceslices", devices(nodeName="n", devices=[{"name": "gpu-0"}])),
    "a capacity that is asked for": (
        "resourceclaims",
        claim(exactly(capacity={"requests": {"memory": "1024Mi"}})),
    ),
    "a device that is shared": giving(default="1Gi"),
    "a device that is not, with a policy": giving(shared=False, default="1Gi"),
    "values": giving(default="1Gi", validValues=["1Gi", "2Gi"]),
    "values without a default": giving(validValues=["1Gi", "2Gi"]),
    "values that fall": giving(default="1Gi", validValues=["2Gi", "1Gi"]),
    "values beyond": giving(default="2Gi", validValues=["1Gi", "81Gi"]),
    "values and a range": giving(default="1Gi", validValues=["1Gi"], validRange={"min": "1Gi"}),
    "many values": giving(default="1", validValues=[str(n) for n in range(1, 12)]),
    "a range": giving(default="3Gi", validRange={"min": "1Gi", "max": "9Gi", "step": "2Gi"}),
    "a range without a default": giving(validRange={"min": "1Gi"}),
    "a range without a beginning": giving(default="1Gi", validRange={"max": "9Gi"}),
    "a range beyond": giving(default="81Gi", validRange={"min": "90Gi", "max": "85Gi"}),
    "a range that is missed": giving(default="10Gi", validRange={"min": "1Gi", "max": "9Gi"}),
    "a step that is missed": giving(default="2Gi", validRange={"min": "1Gi", "max": "10Gi", "step": "2Gi"}),
    "a step too far": giving(value="3", default="1", validRange={"min": "1", "step": "5"}),
    "a device that is made ready": attached(["x.com/a"], ["x.com/b"]),
    "a device that never fails": attached(["x.com/a"], []),
    "a device that only fails": attached([], ["x.com/b"]),
    "a condition twice": attached(["x.com/a", "x.com/a"], ["x.com/b", "x.com/b"]),
    "a condition of both": attached(["x.com/a"], ["x.com/a"]),
    "many conditions": attached([f"x.com/{n}" for n in range(5)], ["b"]),
    "a condition of no name": attached(["x.com/a b"], ["b"]),
    "slice of no node": ("resourceslices", devices()),
    "slice of two kinds": ("resourceslices", devices(nodeName="n", allNodes=True)),
}


def verdict(answer: Answer) -> Any:
    if answer.status >= 400:
        causes = answer.json.get("details", {}).get("causes", [])
        return answer.status, answer.json["reason"], sorted((c["field"], c["message"]) for c in causes)
    obj = answer.json
    asked = obj["spec"].get("devices")
    if isinstance(asked, dict) and not asked.get("requests"):
        asked.pop("requests", None)  # Go writes null or an empty list here
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        obj["metadata"].pop(key, None)
    return answer.status, obj


def path_of(plural: str, namespace: str = "default") -> str:
    return (
        f"{GROUP}/{plural}"
        if plural in ("deviceclasses", "resourceslices")
        else f"{GROUP}/namespaces/{namespace}/{plural}"
    )


@pytest.mark.parametrize(("plural", "body"), BODIES.values(), ids=BODIES.keys())
def test_what_is_taken_and_refused(both: Pair, plural: str, body: dict[str, Any]) -> None:
    text = json.loads(json.dumps(body)) | {"metadata": {"name": "x"}}
    embedded, real = (
        verdict(cluster.send("POST", path_of(plural), text, query="dryRun=All")) for cluster in both
    )
    assert embedded == real, f"{json.dumps(embedded)}\n{json.dumps(real)}"


@pytest.mark.parametrize("name", ["claim", "template", "class", "slice"])
def test_tables(both: Pair, name: str) -> None:
    plural, body = BODIES[name]
    made = json.loads(json.dumps(body)) | {"metadata": {"name": f"x-{os.getpid()}"}}
    seen = []
    for cluster in both:
        where = path_of(plural, cluster.new_namespace())
        cluster.post(where, made).ok(201)
        table = cluster.get(f"{where}/x-{os.getpid()}", accept=TABLE).ok()
        columns = [(c["name"], c["type"], c["format"], c["priority"]) for c in table["columnDefinitions"]]
        (row,) = table["rows"]
        cells = [cell for column, cell in zip(columns, row["cells"], strict=True) if column[0] != "Age"]
        seen.append((columns, cells))
    assert seen[0] == seen[1]


def test_a_claims_status_is_written_by_itself(both: Pair) -> None:
    status = {
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "d.com", "pool": "n", "device": "gpu-0"}]}
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    seen = []
    for cluster in both:
        where = path_of("resourceclaims", cluster.new_namespace())
        cluster.post(where, claim(exactly()) | {"metadata": {"name": "x"}}).ok(201)
        patched = cluster.send("PATCH", f"{where}/x/status", {"status": status}, content=MERGE)
        cleared = cluster.send(
            "PATCH",
            f"{where}/x/status",
            {"status": {"allocation": None, "reservedFor": None}},
            content=MERGE,
        )
        changed = cluster.send("PATCH", f"{where}/x", {"spec": {"devices": {}}}, content=MERGE)
        first = patched.ok()["status"]
        first["allocation"].pop("allocationTimestamp", None)
        seen.append((first, cleared.ok().get("status"), changed.status))
    assert seen[0] == seen[1]
