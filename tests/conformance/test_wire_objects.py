"""Single objects: create, read, replace, delete; names, versions, preconditions, finalizers."""

from __future__ import annotations

import re

from clusters import Cluster, config_map, eventually, pod, status_of

NAME = re.compile(r"^base-[bcdfghjklmnpqrstvwxz2456789]{5}$")


class TestCreate:
    def test_what_the_server_fills_in(self, api: Cluster, ns: str, maps: str) -> None:
        made = api.post(maps, config_map("a", {"k": "v"})).ok(201)
        metadata = made["metadata"]
        assert (made["kind"], made["apiVersion"], made["data"]) == ("ConfigMap", "v1", {"k": "v"})
        assert metadata["namespace"] == ns
        assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
        assert int(metadata["resourceVersion"]) > 0
        assert "generation" not in metadata
        assert api.get(f"{maps}/a").ok() == made

    def test_pods_are_defaulted(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p")).ok(201)
        assert made["metadata"]["generation"] == 1
        assert made["status"]["phase"] == "Pending"
        assert made["status"]["qosClass"] == "BestEffort"
        spec = made["spec"]
        assert spec["restartPolicy"] == "Never"
        assert spec["dnsPolicy"] == "ClusterFirst"
        assert spec["terminationGracePeriodSeconds"] == 30
        assert spec["enableServiceLinks"] is True
        assert spec["priority"] == 0
        assert spec["preemptionPolicy"] == "PreemptLowerPriority"
        assert spec["securityContext"] == {}
        keys = {toleration["key"] for toleration in spec["tolerations"]}
        assert keys == {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
        (container,) = spec["containers"]
        assert container["terminationMessagePath"] == "/dev/termination-log"
        assert container["terminationMessagePolicy"] == "File"
        assert container["imagePullPolicy"] == "Always"
        assert container["resources"] == {}

    def test_a_pods_scheduler_is_defaulted(self, api: Cluster, pods: str) -> None:
        body = pod("p")
        del body["spec"]["schedulerName"]
        made = api.post(pods, body, "dryRun=All").ok(201)
        assert made["spec"]["schedulerName"] == "default-scheduler"

    def test_limits_become_requests(self, api: Cluster, pods: str) -> None:
        body = pod("p")
        body["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1500m", "nvidia.com/gpu": 2}}
        made = api.post(pods, body).ok(201)
        resources = made["spec"]["containers"][0]["resources"]
        assert resources == {
            "limits": {"cpu": "1500m", "nvidia.com/gpu": "2"},
            "requests": {"cpu": "1500m", "nvidia.com/gpu": "2"},
        }
        assert made["status"]["qosClass"] == "Burstable"

    def test_generated_names(self, api: Cluster, maps: str) -> None:
        names = {
            api.post(maps, config_map(generateName="base-")).ok(201)["metadata"]["name"] for _ in range(5)
        }
        assert len(names) == 5
        assert all(NAME.match(name) for name in names)
        long = api.post(maps, config_map(generateName="x" * 80)).ok(201)["metadata"]["name"]
        assert (len(long), long[:58]) == (63, "x" * 58)

    def test_a_name_is_needed(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, config_map())
        assert answer.status == 422
        cause = answer.json["details"]["causes"][0]
        assert (cause["reason"], cause["field"]) == ("FieldValueRequired", "metadata.name")

    def test_the_same_name_twice(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        answer = api.post(maps, config_map("a"))
        expected = status_of(
            409, "AlreadyExists", 'configmaps "a" already exists', {"name": "a", "kind": "configmaps"}
        )
        assert (answer.status, answer.json) == (409, expected)

    def test_a_namespace_that_is_not_there(self, api: Cluster) -> None:
        answer = api.post("/api/v1/namespaces/nons/pods", pod("p"))
        expected = status_of(
            404, "NotFound", 'namespaces "nons" not found', {"name": "nons", "kind": "namespaces"}
        )
        assert (answer.status, answer.json) == (404, expected)

    def test_a_version_may_not_be_given(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, config_map("a", resourceVersion="5"))
        assert answer.status in (400, 500)
        assert answer.json["message"] == "resourceVersion should not be set on objects to be created"

    def test_a_uid_and_times_that_the_client_sends_are_not_kept(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, config_map("a", uid="mine", creationTimestamp="2001-01-01T00:00:00Z")).ok(201)
        assert made["metadata"]["uid"] != "mine"
        assert not made["metadata"]["creationTimestamp"].startswith("2001")

    def test_dry_run_keeps_nothing(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, config_map("a"), "dryRun=All").ok(201)
        assert made["metadata"]["uid"]
        assert api.get(f"{maps}/a").status == 404
        assert api.post(maps, config_map("a"), "dryRun=Some").status == 422

    def test_yaml_in_and_out(self, api: Cluster, maps: str) -> None:
        body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: 'on'\n"
        answer = api.post(maps, body, content="application/yaml", accept="application/yaml")
        assert answer.status == 201
        assert answer.headers["content-type"] == "application/yaml"
        assert "  name: a\n" in answer.text
        assert api.get(f"{maps}/a").ok()["data"] == {"a": "on"}

    def test_yaml_words_are_booleans_as_ever(self, api: Cluster, maps: str) -> None:
        body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: b\ndata:\n  a: on\n"
        answer = api.post(maps, body, content="application/yaml")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert "cannot unmarshal bool into Go struct field ConfigMap.data of type string" in answer.text

    def test_a_builtin_body_without_kind_is_taken_from_the_url(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, {"metadata": {"name": "a"}}).ok(201)
        assert (made["kind"], made["apiVersion"]) == ("ConfigMap", "v1")


class TestReplace:
    def test_replace(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, config_map("a", {"k": "1"})).ok(201)
        made["data"] = {"k": "2"}
        changed = api.put(f"{maps}/a", made).ok()
        assert changed["data"] == {"k": "2"}
        assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
        assert changed["metadata"]["uid"] == made["metadata"]["uid"]

    def test_an_old_version_is_refused(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, config_map("a", {"k": "1"})).ok(201)
        api.patch(f"{maps}/a", {"data": {"k": "2"}}).ok()
        answer = api.put(f"{maps}/a", made)
        expected = status_of(
            409,
            "Conflict",
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
            "please apply your changes to the latest version and try again",
            {"name": "a", "kind": "configmaps"},
        )
        assert (answer.status, answer.json) == (409, expected)

    def test_without_a_version_it_overwrites(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a", {"k": "1"})).ok(201)
        assert api.put(f"{maps}/a", config_map("a", {"k": "3"})).ok()["data"] == {"k": "3"}

    def test_nothing_changed_is_no_new_version(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, config_map("a", {"k": "1"})).ok(201)
        assert api.put(f"{maps}/a", made).ok() == made
        assert api.patch(f"{maps}/a", {"data": {"k": "1"}}).ok() == made

    def test_an_absent_lease_is_created_and_an_absent_pod_is_not(
        self, api: Cluster, ns: str, maps: str, pods: str
    ) -> None:
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
        lease = {"metadata": {"name": "new"}, "spec": {"holderIdentity": "me"}}
        assert api.put(f"{leases}/new", lease).status == 201
        answer = api.put(f"{leases}/new", lease)
        assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (
            422,
            "metadata.resourceVersion",
        )
        assert api.put(f"{maps}/new", config_map("new")).status == 404
        answer = api.put(f"{pods}/new", pod("new"))
        expected = status_of(404, "NotFound", 'pods "new" not found', {"name": "new", "kind": "pods"})
        assert (answer.status, answer.json) == (404, expected)

    def test_another_uid(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p")).ok(201)
        wrong = {**made, "metadata": {**made["metadata"], "uid": "other"}}
        answer = api.put(f"{pods}/p", wrong)
        assert answer.status == 409
        assert answer.json["reason"] == "Conflict"
        assert (
            "Precondition failed: UID in precondition: other, UID in object meta: " in answer.json["message"]
        )

    def test_body_and_url_differ(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        answer = api.put(f"{maps}/a", config_map("b"))
        message = "the name of the object (b) does not match the name on the URL (a)"
        assert (answer.status, answer.json) == (400, status_of(400, "BadRequest", message))
        answer = api.put(f"{maps}/a", config_map("a", namespace="elsewhere"))
        message = "the namespace of the provided object does not match the namespace sent on the request"
        assert (answer.status, answer.json) == (400, status_of(400, "BadRequest", message))

    def test_most_of_a_pods_spec_is_fixed(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p")).ok(201)
        answer = api.patch(f"{pods}/p", {"spec": {"restartPolicy": "Always"}})
        assert answer.status == 422
        assert "pod updates may not change fields other than" in answer.json["message"]
        changed = api.patch(f"{pods}/p", {"spec": {"activeDeadlineSeconds": 60}}).ok()
        assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1


class TestDelete:
    def test_gone_at_once(self, api: Cluster, maps: str) -> None:
        made = api.post(maps, config_map("a")).ok(201)
        answer = api.delete(f"{maps}/a")
        assert answer.ok() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]},
        }
        expected = status_of(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})
        for again in (api.get(f"{maps}/a"), api.delete(f"{maps}/a")):
            assert (again.status, again.json) == (404, expected)

    def test_a_pod_without_a_node_goes_at_once_and_is_returned(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        assert api.delete(f"{pods}/p").ok()["kind"] == "Pod"
        assert api.get(f"{pods}/p").status == 404

    def test_a_pod_on_a_node_ends_gracefully(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p", spec={"nodeName": "n1"})).ok(201)
        deleted = api.delete(f"{pods}/p", {"gracePeriodSeconds": 7}).ok()
        metadata = deleted["metadata"]
        assert metadata["deletionGracePeriodSeconds"] == 7
        assert metadata["deletionTimestamp"] > made["metadata"]["creationTimestamp"]
        assert metadata["generation"] == 2
        assert api.delete(f"{pods}/p", {"gracePeriodSeconds": 30}).ok()["metadata"] == metadata
        assert api.delete(f"{pods}/p", {"gracePeriodSeconds": 0}).ok()["kind"] == "Pod"
        assert api.get(f"{pods}/p").status == 404

    def test_preconditions(self, api: Cluster, pods: str) -> None:
        made = api.post(pods, pod("p")).ok(201)
        uid, rv = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
        answer = api.delete(f"{pods}/p", {"preconditions": {"uid": "x"}})
        message = (
            'Operation cannot be fulfilled on Pod "p": the UID in the precondition (x) does not match the UID '
            f"in record ({uid}). The object might have been deleted and then recreated"
        )
        expected = status_of(409, "Conflict", message, {"name": "p", "kind": "Pod"})
        assert (answer.status, answer.json) == (409, expected)
        answer = api.delete(f"{pods}/p", {"preconditions": {"resourceVersion": "5"}})
        message = (
            'Operation cannot be fulfilled on Pod "p": the ResourceVersion in the precondition (5) does not '
            f"match the ResourceVersion in record ({rv}). The object might have been modified"
        )
        assert (answer.status, answer.json) == (
            409,
            status_of(409, "Conflict", message, {"name": "p", "kind": "Pod"}),
        )
        api.delete(f"{pods}/p", {"preconditions": {"uid": uid, "resourceVersion": rv}}).ok()

    def test_finalizers_hold_an_object(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a", {"k": "1"}, finalizers=["ex.io/hold"])).ok(201)
        deleted = api.delete(f"{maps}/a").ok()
        assert deleted["kind"] == "ConfigMap"
        assert deleted["metadata"]["deletionTimestamp"]
        assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
        assert api.delete(f"{maps}/a").ok() == deleted
        answer = api.patch(f"{maps}/a", {"metadata": {"finalizers": ["ex.io/hold", "ex.io/more"]}})
        assert answer.status == 422
        assert "no new finalizers can be added if the object is being deleted" in answer.json["message"]
        assert api.patch(f"{maps}/a", {"data": {"k": "2"}}).ok()["data"] == {"k": "2"}
        last = api.patch(f"{maps}/a", {"metadata": {"finalizers": None}})
        assert last.ok()["metadata"]["name"] == "a"
        assert api.get(f"{maps}/a").status == 404

    def test_an_unqualified_finalizer_is_refused(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, config_map("a", finalizers=["mine"]))
        assert answer.status == 422
        assert answer.json["details"]["causes"][0]["field"] == "metadata.finalizers[0]"

    def test_dry_run(self, api: Cluster, maps: str) -> None:
        api.post(maps, config_map("a")).ok(201)
        api.delete(f"{maps}/a", query="dryRun=All").ok()
        api.delete(f"{maps}/a", {"dryRun": ["All"]}).ok()
        api.get(f"{maps}/a").ok()

    def test_a_collection(self, api: Cluster, maps: str) -> None:
        for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
            api.post(maps, config_map(name, labels={"colour": colour})).ok(201)
        deleted = api.delete(maps, query="labelSelector=colour%3Dred").ok()
        assert deleted["kind"] == "ConfigMapList"
        assert sorted(item["metadata"]["name"] for item in deleted["items"]) == ["a", "c"]
        left = [item["metadata"]["name"] for item in api.get(maps).ok()["items"]]
        assert "b" in left
        assert not {"a", "c"} & set(left)


class TestGarbage:
    """Owners and dependents; needs the garbage collector (part of both)."""

    def owned(self, name: str, owner: dict, **extra: object) -> dict:
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **extra,
        }
        return config_map(name, ownerReferences=[reference])

    def test_dependents_go_with_their_owner(self, api: Cluster, maps: str) -> None:
        owner = api.post(maps, config_map("owner")).ok(201)
        api.post(maps, self.owned("child", owner)).ok(201)
        api.delete(f"{maps}/owner").ok()
        eventually(lambda: api.get(f"{maps}/child").status == 404)

    def test_orphans_stay(self, api: Cluster, maps: str) -> None:
        owner = api.post(maps, config_map("owner")).ok(201)
        api.post(maps, self.owned("child", owner)).ok(201)
        deleted = api.delete(f"{maps}/owner", {"propagationPolicy": "Orphan"}).ok()
        assert deleted["metadata"]["finalizers"] == ["orphan"]
        eventually(lambda: api.get(f"{maps}/owner").status == 404)
        assert "ownerReferences" not in api.get(f"{maps}/child").ok()["metadata"]

    def test_foreground_waits_for_the_dependents(self, api: Cluster, maps: str) -> None:
        owner = api.post(maps, config_map("owner")).ok(201)
        child = self.owned("child", owner, blockOwnerDeletion=True)
        child["metadata"]["finalizers"] = ["ex.io/hold"]
        api.post(maps, child).ok(201)
        deleted = api.delete(f"{maps}/owner", {"propagationPolicy": "Foreground"}).ok()
        assert deleted["metadata"]["finalizers"] == ["foregroundDeletion"]
        eventually(lambda: "deletionTimestamp" in api.get(f"{maps}/child").ok()["metadata"])
        api.get(f"{maps}/owner").ok()
        api.patch(f"{maps}/child", {"metadata": {"finalizers": None}}).ok()
        eventually(lambda: api.get(f"{maps}/owner").status == 404)

    def test_an_owner_that_never_was(self, api: Cluster, maps: str) -> None:
        ghost = {"metadata": {"name": "ghost", "uid": "00000000-0000-4000-8000-000000000000"}}
        api.post(maps, self.owned("child", ghost)).ok(201)
        eventually(lambda: api.get(f"{maps}/child").status == 404)
