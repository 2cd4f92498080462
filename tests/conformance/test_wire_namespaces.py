"""The life of a namespace (the namespace controller is part of both)."""

from __future__ import annotations

from clusters import Cluster, config_map, eventually, pod, status_of


def test_what_a_new_one_has(api: Cluster, ns: str) -> None:
    made = api.get(f"/api/v1/namespaces/{ns}").ok()
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": ns}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    assert "generation" not in made["metadata"]


def test_those_that_are_always_there(api: Cluster) -> None:
    for name in ("default", "kube-system", "kube-public"):
        answer = api.delete(f"/api/v1/namespaces/{name}")
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
        assert (
            answer.json["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )


def test_deletion_takes_everything_with_it(api: Cluster, ns: str, maps: str, pods: str) -> None:
    api.post(maps, config_map("a")).ok(201)
    api.post(pods, pod("p")).ok(201)
    deleted = api.delete(f"/api/v1/namespaces/{ns}").ok()
    assert deleted["status"]["phase"] == "Terminating"
    assert deleted["metadata"]["deletionTimestamp"]
    eventually(lambda: api.get(f"/api/v1/namespaces/{ns}").status == 404)
    assert api.get(pods).ok()["items"] == []
    assert api.get(f"{maps}/a").status == 404


def test_a_terminating_one_takes_nothing_new_and_waits_for_finalizers(
    api: Cluster, ns: str, maps: str
) -> None:
    api.post(maps, config_map("held", finalizers=["ex.io/hold"])).ok(201)
    api.delete(f"/api/v1/namespaces/{ns}").ok()
    answer = api.post(maps, config_map("k2"))
    expected = status_of(
        403,
        "Forbidden",
        f'configmaps "k2" is forbidden: unable to create new content in namespace {ns} '
        "because it is being terminated",
        {
            "name": "k2",
            "kind": "configmaps",
            "causes": [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {ns} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        },
    )
    assert (answer.status, answer.json) == (403, expected)

    def told() -> bool:
        status = api.get(f"/api/v1/namespaces/{ns}").ok()["status"]
        found = {c["type"]: c["status"] for c in status.get("conditions", ())}
        return found.get("NamespaceFinalizersRemaining") == "True"

    eventually(told)
    api.patch(f"{maps}/held", {"metadata": {"finalizers": None}}).ok()
    eventually(lambda: api.get(f"/api/v1/namespaces/{ns}").status == 404)


def test_the_name_in_the_body_decides(api: Cluster) -> None:
    answer = api.post("/api/v1/namespaces", {"metadata": {"name": "Not_Valid"}})
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert answer.json["details"]["causes"][0]["field"] == "metadata.name"
