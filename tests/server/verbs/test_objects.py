"""Creating and changing objects."""

from __future__ import annotations

import json
import re

import pytest
from server_in_process import GROUPS, JOBS, MAPS, PODS, Api, config_map, pod
from volcanoobjects import group

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/default/events"
EVENTS_V1 = "/apis/events.k8s.io/v1/namespaces/default/events"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class TestCreate:
    async def test_server_sets_identity_fields(self, api: Api) -> None:
        made = (await api.post(PODS, pod("p", metadata={"uid": "mine", "generation": 9}))).ok(201)
        metadata = made["metadata"]
        assert UUID.fullmatch(metadata["uid"])
        assert metadata["creationTimestamp"] == "2026-01-01T12:00:00Z"
        assert metadata["generation"] == 1
        assert metadata["namespace"] == "default"
        assert int(metadata["resourceVersion"]) == api.store.rv
        assert made["status"]["phase"] == "Pending"
        assert (await api.get(f"{PODS}/p")).ok() == made

    async def test_kinds_without_generation(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m"))).ok(201)
        assert "generation" not in made["metadata"]

    async def test_fields_of_the_server_cannot_be_set_by_clients(self, api: Api) -> None:
        given = {
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 5,
            "managedFields": [],
            "selfLink": "/x",
        }
        made = (await api.post(MAPS, {**config_map("m"), "metadata": {"name": "m", **given}})).ok(201)
        assert not set(given) & set(made["metadata"])

    async def test_names_are_generated(self, api: Api) -> None:
        made = (await api.post(PODS, pod(metadata={"generateName": "x" * 70}))).ok(201)
        assert re.fullmatch(r"x{58}[bcdfghjklmnpqrstvwxz2456789]{5}", made["metadata"]["name"])

    async def test_generated_name_is_retried_if_it_exists(
        self, api: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = iter(["aaaaa", "aaaaa", "bbbbb"])
        monkeypatch.setattr("windlass.server.verbs.create.name_suffix", lambda rng: next(names))
        body = {**config_map(""), "metadata": {"generateName": "m-"}}
        first = (await api.post(MAPS, body)).ok(201)
        second = (await api.post(MAPS, body)).ok(201)
        assert (first["metadata"]["name"], second["metadata"]["name"]) == ("m-aaaaa", "m-bbbbb")

    async def test_create_of_an_object_under_deletion_says_so(self, api: Api) -> None:
        body = {**config_map("m"), "metadata": {"name": "m", "finalizers": ["ex.io/a"]}}
        (await api.post(MAPS, body)).ok(201)
        assert (await api.post(MAPS, body)).message == 'configmaps "m" already exists'
        (await api.delete(f"{MAPS}/m")).ok()
        for query in ({}, {"dryRun": "All"}):
            answer = await api.post(MAPS, body, **query)
            assert (answer.status, answer.reason) == (409, "AlreadyExists")
            assert answer.message == 'object is being deleted: configmaps "m" already exists'

    async def test_whole_numbers_of_custom_kinds_are_stored_as_integers(self, api: Api) -> None:
        raw = json.dumps(group("g", minMember=2)).replace('"minMember": 2', '"minMember": 2.0')
        assert '"minMember": 2.0' in raw
        (await api.post(GROUPS, raw.encode())).ok(201)
        assert b'"minMember":2,' in (await api.get(f"{GROUPS}/g")).body
        (await api.patch(f"{GROUPS}/g", b'{"spec":{"minMember":3e0}}')).ok()
        assert b'"minMember":3,' in (await api.get(f"{GROUPS}/g")).body

    async def test_whole_numbers_in_a_pod_template_of_a_custom_kind(self, api: Api) -> None:
        spec = {"activeDeadlineSeconds": 60.0, "containers": [{"name": "m", "image": "i"}]}
        probe = {"httpGet": {"port": 8080.0}, "periodSeconds": 1e1}
        spec["containers"][0]["readinessProbe"] = probe  # type: ignore[index]
        task = {"name": "t", "replicas": 2.0, "template": {"spec": spec}}
        body = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"minAvailable": 2.0, "tasks": [task]},
        }
        (await api.post(JOBS, body)).ok(201)
        stored = (await api.get(f"{JOBS}/j")).body.decode()
        for text in ('"activeDeadlineSeconds":60,', '"port":8080}', '"periodSeconds":10', '"replicas":2,'):
            assert text in stored

    @pytest.mark.parametrize("depth", [300, 1101, 20_000])
    async def test_deep_nesting_is_a_bad_request(self, api: Api, depth: int) -> None:
        deep = '{"a":' * depth + "1" + "}" * depth
        body = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"d"}},"data":{deep}}}'.encode()
        (await api.post(MAPS, config_map("m"))).ok(201)
        for answer in (
            await api.post(MAPS, body),
            await api.post(MAPS, body, content_type="application/yaml"),
            await api.put(f"{MAPS}/m", body),
            await api.patch(f"{MAPS}/m", body),
            await api.patch(f"{MAPS}/m", body, kind="strategic"),
            await api.delete(f"{MAPS}/m", body),
        ):
            assert (answer.status, answer.reason) == (400, "BadRequest")
            assert "depth" in answer.message or "nested too deeply" in answer.message

    async def test_a_json_patch_cannot_nest_without_end(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        grow = {"op": "copy", "from": "/metadata", "path": "/metadata/labels"}
        answer = await api.patch(f"{MAPS}/m", [grow] * 12, kind="json")
        assert answer.status in (400, 422)

    async def test_a_service_may_begin_with_a_digit(self, api: Api) -> None:
        services = "/api/v1/namespaces/default/services"
        spec = {"clusterIP": "None", "ports": [{"port": 80}]}
        (await api.post(services, {"metadata": {"name": "7b-pretrain"}, "spec": spec})).ok(201)
        assert (await api.post(services, {"metadata": {"name": "a.b"}, "spec": spec})).status == 422

    async def test_no_name_at_all(self, api: Api) -> None:
        answer = await api.post(MAPS, {"data": {}})
        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.json["details"]["causes"][0]["field"] == "metadata.name"

    async def test_a_name_is_used_once(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        answer = await api.post(MAPS, config_map("m"))
        assert (answer.status, answer.message) == (409, 'configmaps "m" already exists')

    async def test_version_must_not_be_set(self, api: Api) -> None:
        body = {**config_map("m"), "metadata": {"name": "m", "resourceVersion": "5"}}
        answer = await api.post(MAPS, body)
        assert (answer.status, answer.message) == (
            400,
            "resourceVersion should not be set on objects to be created",
        )

    async def test_namespaces_must_agree(self, api: Api) -> None:
        body = {**config_map("m"), "metadata": {"name": "m", "namespace": "kube-system"}}
        answer = await api.post(MAPS, body)
        assert answer.status == 400
        assert "does not match the namespace sent on the request" in answer.message

    async def test_a_namespace_that_is_absent(self, api: Api) -> None:
        answer = await api.post("/api/v1/namespaces/none/configmaps", config_map("m"))
        assert (answer.status, answer.message) == (404, 'namespaces "none" not found')

    async def test_dry_run_stores_nothing(self, api: Api) -> None:
        before = api.store.rv
        made = (await api.post(MAPS, config_map("m"), dryRun="All")).ok(201)
        assert "resourceVersion" not in made["metadata"]
        assert made["metadata"]["uid"]
        assert api.store.rv == before
        (await api.post(MAPS, config_map("m"))).ok(201)
        assert (await api.post(MAPS, config_map("m"), dryRun="All")).status == 409
        assert (await api.post(MAPS, config_map("n"), dryRun="Some")).status == 422

    async def test_field_validation(self, api: Api) -> None:
        body = pod("p", spec={"colour": "red"})
        strict = await api.post(PODS, body, fieldValidation="Strict")
        assert strict.status == 400
        assert 'unknown field "spec.colour"' in strict.message
        warned = await api.post(PODS, body)
        assert warned.warnings == '299 - "unknown field \\"spec.colour\\""'
        assert "colour" not in warned.ok(201)["spec"]
        ignored = await api.post(PODS, pod("q", spec={"colour": "red"}), fieldValidation="Ignore")
        assert ignored.warnings == ""
        assert (await api.post(PODS, pod("r"), fieldValidation="Perhaps")).status == 422

    async def test_label_that_is_not_a_string_is_rejected(self, api: Api) -> None:
        body = {**config_map("m"), "metadata": {"name": "m", "labels": {"n": 1}}}
        assert (await api.post(MAPS, body)).status == 400

    async def test_yaml_in_and_out(self, api: Api) -> None:
        body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: b}\n"
        answer = await api.send(
            "POST", MAPS, body, content_type="application/yaml", accept="application/yaml"
        )
        assert answer.status == 201
        assert answer.headers["content-type"] == "application/yaml"
        assert answer.body.startswith(b"apiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\n")

    async def test_invalid_bodies_are_rejected(self, api: Api) -> None:
        assert (await api.post(MAPS, b"{")).status == 400
        assert (await api.send("POST", MAPS, b"x", content_type="text/html")).status == 415

    async def test_namespaces_are_created_with_all_fields(self, api: Api) -> None:
        made = (await api.post("/api/v1/namespaces", {"metadata": {"name": "team"}})).ok(201)
        assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
        assert (made["spec"], made["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


class TestUpdate:
    async def test_a_stale_version_conflicts(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m", a="1"))).ok(201)
        changed = {**made, "data": {"a": "2"}}
        (await api.put(f"{MAPS}/m", changed)).ok()
        answer = await api.put(f"{MAPS}/m", {**made, "data": {"a": "3"}})
        assert (answer.status, answer.reason) == (409, "Conflict")
        assert answer.json["details"] == {"name": "m", "kind": "configmaps"}

    async def test_without_a_version_it_overwrites(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m", a="1"))).ok(201)
        changed = (await api.put(f"{MAPS}/m", config_map("m", a="2"))).ok()
        assert changed["metadata"]["uid"] == made["metadata"]["uid"]
        assert changed["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
        assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])

    async def test_custom_kinds_demand_a_version(self, api: Api) -> None:
        (await api.post(GROUPS, group("g"))).ok(201)
        answer = await api.put(f"{GROUPS}/g", group("g", minMember=2))
        assert answer.status == 422
        assert answer.json["details"]["causes"][0]["field"] == "metadata.resourceVersion"

    async def test_update_without_changes_is_not_written(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m", a="1"))).ok(201)
        watch = await api.watch(MAPS, resourceVersion=api.store.rv)
        assert (await api.put(f"{MAPS}/m", made)).ok() == made
        assert (await api.patch(f"{MAPS}/m", {"data": {"a": "1"}})).ok() == made
        assert await watch.events() == []
        await watch.close()

    async def test_another_uid_conflicts(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m"))).ok(201)
        made["metadata"]["uid"] = "other"
        answer = await api.put(f"{MAPS}/m", made)
        assert answer.status == 409
        assert "Precondition failed: UID in precondition: other" in answer.message

    async def test_name_in_body_and_url_must_agree(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        answer = await api.put(f"{MAPS}/m", config_map("n"))
        assert answer.message == "the name of the object (n) does not match the name on the URL (m)"
        answer = await api.put(f"{MAPS}/m", {"data": {}})
        assert "undeterminable" in answer.message

    async def test_some_kinds_are_created_by_put(self, api: Api) -> None:
        (await api.put(f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {}})).ok(201)
        assert (await api.put(f"{PODS}/p", pod("p"))).status == 404
        assert (await api.put(f"{LEASES}/l", {"metadata": {"name": "l"}, "spec": {}})).status == 422

    async def test_writes_change_either_status_or_spec(self, api: Api) -> None:
        made = (await api.post(PODS, pod("p"))).ok(201)
        written = {**made, "status": {"phase": "Running"}, "spec": {**made["spec"], "nodeName": "n"}}
        by_status = (await api.put(f"{PODS}/p/status", written)).ok()
        assert by_status["status"]["phase"] == "Running"
        assert "nodeName" not in by_status["spec"]
        by_spec = (await api.patch(f"{PODS}/p", {"status": {"phase": "Failed"}})).ok()
        assert by_spec["status"]["phase"] == "Running"
        assert (await api.get(f"{PODS}/p/status")).ok() == by_spec

    async def test_status_of_custom_kinds_is_dropped_at_creation(self, api: Api) -> None:
        body = {**group("g"), "status": {"phase": "Running"}}
        made = (await api.post(GROUPS, body)).ok(201)
        assert made["status"] == {"phase": "Pending"}
        changed = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
        changed = (await api.patch(f"{GROUPS}/g/status", changed)).ok()
        assert changed["status"]["phase"] == "Running"
        assert "labels" not in changed["metadata"]

    async def test_generation_counts_changes_of_the_spec(self, api: Api) -> None:
        (await api.post(GROUPS, group("g"))).ok(201)

        async def generation(body: object, path: str = f"{GROUPS}/g") -> int:
            return (await api.patch(path, body)).ok()["metadata"]["generation"]

        assert await generation({"metadata": {"labels": {"a": "b"}}}) == 1
        assert await generation({"status": {"phase": "Pending"}}, f"{GROUPS}/g/status") == 1
        assert await generation({"spec": {"minMember": 2}}) == 2
        assert await generation({"metadata": {"generation": 40}}) == 2

    async def test_deletion_times_cannot_be_set(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        answer = await api.patch(f"{MAPS}/m", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        assert answer.status == 422

    async def test_dry_run_changes_nothing(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m", a="1"))).ok(201)
        shown = (await api.patch(f"{MAPS}/m", {"data": {"a": "2"}}, dryRun="All")).ok()
        assert shown["data"] == {"a": "2"}
        assert shown["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        assert (await api.get(f"{MAPS}/m")).ok() == made

    async def test_writes_in_one_batch_see_one_another(self, api: Api) -> None:
        import asyncio

        (await api.post(MAPS, config_map("m"))).ok(201)
        answers = await asyncio.gather(*(api.patch(f"{MAPS}/m", {"data": {f"k{n}": "v"}}) for n in range(50)))
        assert all(answer.status == 200 for answer in answers)
        assert len((await api.get(f"{MAPS}/m")).ok()["data"]) == 50


class TestPatch:
    async def test_kinds_of_patch(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        path = f"{PODS}/p"
        added = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
        assert (await api.patch(path, added, "json")).ok()["metadata"]["labels"] == {"a": "b"}
        image = {"spec": {"containers": [{"name": "main", "image": "train:2"}]}}
        assert (await api.patch(path, image, "strategic")).ok()["spec"]["containers"][0]["image"] == "train:2"
        assert (await api.patch(f"{PODS}/none", {})).status == 404

    async def test_unsupported_media_types_are_rejected(self, api: Api) -> None:
        (await api.post(GROUPS, group("g"))).ok(201)
        strategic = await api.patch(f"{GROUPS}/g", {}, "strategic")
        assert strategic.status == 415
        assert "application/merge-patch+json" in strategic.message
        plain = await api.send("PATCH", f"{GROUPS}/g", {})
        assert (plain.status, plain.message) == (415, "415: Unsupported Media Type")
        apply = await api.send("PATCH", f"{GROUPS}/g", {}, content_type="application/apply-patch+yaml")
        assert apply.status == 415

    async def test_a_version_in_the_patch_is_a_precondition(self, api: Api) -> None:
        made = (await api.post(MAPS, config_map("m"))).ok(201)
        now = made["metadata"]["resourceVersion"]
        (await api.patch(f"{MAPS}/m", {"metadata": {"resourceVersion": now}, "data": {"a": "1"}})).ok()
        answer = await api.patch(f"{MAPS}/m", {"metadata": {"resourceVersion": now}, "data": {"a": "2"}})
        assert answer.status == 409

    async def test_force_is_for_apply(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        assert (await api.patch(f"{MAPS}/m", {}, force="true")).status == 422

    @pytest.mark.parametrize(
        ("kind", "patch"),
        [
            ("merge", {"status": {"phase": "Running", "colour": "red"}}),
            ("strategic", {"status": {"colour": "red"}}),
            ("json", [{"op": "add", "path": "/status/colour", "value": "red"}]),
            ("json", [{"op": "copy", "from": "/spec/nodeName", "path": "/status/colour"}]),
        ],
    )
    async def test_every_touched_part_is_reviewed(self, api: Api, kind: str, patch: object) -> None:
        (await api.post(PODS, pod("p", spec={"nodeName": "n"}))).ok(201)
        answer = await api.patch(f"{PODS}/p/status", patch, kind)
        assert answer.warnings == '299 - "unknown field \\"status.colour\\""'
        kept = answer.ok()
        assert "colour" not in kept["status"]
        assert kept["spec"]["containers"][0]["terminationMessagePath"] == "/dev/termination-log"

    @pytest.mark.parametrize(("kind", "key"), [("strategic", "$patch"), ("json", "")])
    async def test_a_patch_that_replaces_the_whole_is_reviewed_as_a_whole(
        self, api: Api, kind: str, key: str
    ) -> None:
        (await api.post(MAPS, config_map("m", a="1"))).ok(201)
        whole = {"metadata": {"name": "m"}, "data": {"b": "2"}, "colour": "red"}
        patch: object = {"$patch": "replace", **whole}
        if kind == "json":
            patch = [{"op": "replace", "path": "", "value": whole}]
        answer = await api.patch(f"{MAPS}/m", patch, kind)
        assert answer.ok()["data"] == {"b": "2"}
        assert "colour" in answer.warnings
        assert "colour" not in answer.json

    async def test_a_wrong_type_in_a_patch(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        answer = await api.patch(f"{PODS}/p/status", {"status": {"phase": 7}})
        assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "patch")

    async def test_strict_patches(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        answer = await api.patch(f"{PODS}/p", {"spec": {"colour": "red"}}, fieldValidation="Strict")
        assert answer.status == 422
        assert answer.json["details"]["causes"][0]["field"] == "patch"


class TestAliases:
    JOBS_BETA = JOBS.replace("v1alpha1", "v1beta1")
    SPEC = {
        "minAvailable": 1,
        "tasks": [
            {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
        ],
    }

    async def test_one_object_under_two_versions(self, api: Api) -> None:
        body = {"apiVersion": "batch.volcano.sh/v1beta1", "kind": "Job", "metadata": {"name": "j"}}
        answer = await api.post(self.JOBS_BETA, {**body, "spec": self.SPEC})
        assert answer.ok(201)["apiVersion"] == "batch.volcano.sh/v1beta1"
        assert "alias: batch.volcano.sh/v1beta1 -> v1alpha1" in answer.warnings
        alpha = (await api.get(f"{JOBS}/j")).ok()
        beta = (await api.get(f"{self.JOBS_BETA}/j")).ok()
        assert alpha["apiVersion"] == "batch.volcano.sh/v1alpha1"
        assert beta == {**alpha, "apiVersion": "batch.volcano.sh/v1beta1"}
        listed = (await api.get(self.JOBS_BETA)).ok()
        assert listed["apiVersion"] == listed["items"][0]["apiVersion"] == "batch.volcano.sh/v1beta1"
        patched = await api.patch(f"{self.JOBS_BETA}/j", {"metadata": {"labels": {"a": "b"}}})
        assert patched.ok()["apiVersion"] == "batch.volcano.sh/v1beta1"
        assert "alias:" in patched.warnings
        watch = await api.watch(self.JOBS_BETA)
        assert [obj["apiVersion"] for _, obj in await watch.events()] == ["batch.volcano.sh/v1beta1"]
        await watch.close()


class TestEvents:
    CORE = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"},
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
        "source": {"component": "node"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "count": 3,
    }

    async def test_event_is_served_in_two_groups(self, api: Api) -> None:
        (await api.post(EVENTS, self.CORE)).ok(201)
        seen = (await api.get(f"{EVENTS_V1}/e")).ok()
        assert (seen["apiVersion"], seen["note"]) == ("events.k8s.io/v1", "it runs")
        assert seen["regarding"]["name"] == "p"
        assert seen["deprecatedSource"] == {"component": "node"}
        assert seen["deprecatedCount"] == 3
        assert not {"message", "involvedObject", "source", "count"} & set(seen)
        listed = (await api.get(EVENTS_V1, fieldSelector="regarding.name=p,reason=Started")).ok()
        assert [item["note"] for item in listed["items"]] == ["it runs"]

    async def test_written_in_the_new_group(self, api: Api) -> None:
        body = {
            "metadata": {"name": "n"},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "regarding": {"kind": "Pod", "name": "q", "namespace": "default"},
            "note": "bound",
            "reason": "Scheduled",
            "action": "Binding",
            "type": "Normal",
            "reportingController": "windlass",
            "reportingInstance": "w-1",
        }
        (await api.post(EVENTS_V1, body)).ok(201)
        core = (await api.get(f"{EVENTS}/n")).ok()
        assert (core["message"], core["involvedObject"]["name"]) == ("bound", "q")
        assert core["reportingComponent"] == "windlass"
        selector = "involvedObject.name=q,reportingComponent=windlass,source=windlass"
        listed = (await api.get(EVENTS, fieldSelector=selector)).ok()
        assert len(listed["items"]) == 1
        patched = (await api.patch(f"{EVENTS_V1}/n", {"note": "bound again"})).ok()
        assert patched["note"] == "bound again"
        assert (await api.get(f"{EVENTS}/n")).ok()["message"] == "bound again"

    async def test_selectors_of_the_other_group_are_rejected(self, api: Api) -> None:
        answer = await api.get(EVENTS_V1, fieldSelector="involvedObject.name=p")
        assert (answer.status, answer.message) == (400, "field label not supported: involvedObject.name")
        assert (await api.get(EVENTS, fieldSelector="regarding.name=p")).status == 400
