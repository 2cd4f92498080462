"""Type tables: complete for every kind that is served, quick to load, equal to what the CRD files say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from windlass.api import resources
from windlass.api.resources import Resource
from windlass.api.wire import schema, schema_crd
from windlass.api.wire.schema import CORE, META, SchemaNode, Struct


@pytest.mark.parametrize("resource", resources.ALL, ids=lambda r: f"{r.qualified}/{r.version}")
def test_every_served_kind_has_its_fields(resource: Resource) -> None:
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    assert struct is not None
    assert struct.kind == (resource.group, resource.version, resource.kind)
    assert {"apiVersion", "kind", "metadata"} <= struct.fields.keys()


@pytest.mark.parametrize(
    "kind",
    [
        ("", "v1", "Binding"),
        ("", "v1", "DeleteOptions"),
        ("policy", "v1", "DeleteOptions"),
        ("policy", "v1", "Eviction"),
        ("autoscaling", "v1", "Scale"),
        ("authorization.k8s.io", "v1", "SelfSubjectAccessReview"),
        ("authentication.k8s.io", "v1", "SelfSubjectReview"),
    ],
)
def test_bodies_without_a_resource(kind: tuple[str, str, str]) -> None:
    assert schema.for_kind(*kind) is not None


def test_unknown_kinds() -> None:
    assert schema.for_kind("apps", "v1", "Deployments") is None
    with pytest.raises(KeyError):
        schema.builtin(f"{CORE}Nonsense")


def _walk(struct: Struct, seen: set[str]) -> None:
    if struct.name in seen:
        return
    seen.add(struct.name)
    for name, node in struct.fields.items():
        _check(f"{struct.name}.{name}", node, seen)


def _check(where: str, node: SchemaNode, seen: set[str]) -> None:
    assert node.kind in {*schema.KINDS.values(), "struct", "list", "map"}, where
    assert node.go, where
    if node.kind == "struct":
        assert node.struct is not None
        _walk(node.struct, seen)
    elif node.kind in ("list", "map"):
        assert node.item is not None
        _check(f"{where}[]", node.item, seen)
    if "merge" in node.strategy:
        assert node.merge_key or node.item is None or node.item.kind == "string", where


def test_all_references_resolve_and_every_field_has_a_go_type() -> None:
    seen: set[str] = set()
    for resource in resources.ALL:
        if not resource.custom:
            struct = schema.for_kind(resource.group, resource.version, resource.kind)
            assert struct is not None
            _walk(struct, seen)
    assert f"{CORE}Container" in seen
    assert f"{META}ObjectMeta" in seen


def test_facts_about_containers() -> None:
    fields = schema.builtin(f"{CORE}Container").fields
    assert fields["env"].merge_key == "name"
    assert fields["env"].strategy == ("merge",)
    assert fields["ports"].list_keys == ("containerPort", "protocol")
    assert fields["command"].list_type == "atomic"
    assert fields["image"].omit
    assert not fields["name"].omit
    assert fields["livenessProbe"].pointer
    assert fields["imagePullPolicy"].enum == ("Always", "IfNotPresent", "Never")
    assert schema.builtin(f"{CORE}Container").required == ("name",)
    assert [name for name, _ in schema.builtin(f"{CORE}Container").always] == ["name", "resources"]


def test_inlined_structs_keep_their_protobuf_path() -> None:
    field = schema.builtin(f"{CORE}Volume").fields["emptyDir"]
    assert field.numbers == (2, 2)
    assert field.inline == "VolumeSource"


def test_the_pod_template_of_a_job_is_a_pod_template() -> None:
    struct = schema.for_kind("batch.volcano.sh", "v1alpha1", "Job")
    assert struct is not None
    task = struct.fields["spec"].struct.fields["tasks"].item.struct  # type: ignore[union-attr]
    template = task.fields["template"]  # type: ignore[union-attr]
    assert template.embedded
    assert template.struct is schema.builtin(f"{CORE}PodTemplateSpec")


def test_crds_agree_with_the_resource_table() -> None:
    custom = {(r.group, r.plural): r for r in resources.ALL if r.custom and r not in resources.ALIASES}
    found = {}
    for crd in schema_crd.crds():
        spec = crd["spec"]
        resource = custom[spec["group"], spec["names"]["plural"]]
        found[spec["group"], spec["names"]["plural"]] = crd
        assert crd["metadata"]["name"] == resource.qualified
        assert spec["names"]["kind"] == resource.kind
        assert spec["names"]["listKind"] == resource.list_kind
        assert spec["names"]["singular"] == resource.singular
        assert tuple(spec["names"].get("shortNames", ())) == resource.short_names
        assert tuple(spec["names"].get("categories", ())) == resource.categories
        assert (spec["scope"] == "Namespaced") == resource.namespaced
        storage = [v["name"] for v in spec["versions"] if v["storage"]]
        assert storage == [resource.version]
        has_status = all("status" in v.get("subresources", {}) for v in spec["versions"])
        assert has_status == ("status" in resource.subresources)
    assert found.keys() == custom.keys()


def test_files_of_crds_are_named_by_group_and_plural() -> None:
    """The definitions of a group are found by these names, without parsing the others."""
    for name, crd in zip(schema_crd.crd_texts(), schema_crd.crds(), strict=True):
        spec = crd["spec"]
        assert name == f"{spec['group']}_{spec['names']['plural']}.yaml"
        for version in spec["versions"]:
            assert schema_crd.struct_for(spec["group"], version["name"], spec["names"]["kind"]) is not None


def test_every_field_of_the_crds_is_described() -> None:
    """``kubectl explain`` shows the project's own words for its own kinds."""
    for kind in ("Queue", "PodGroup"):
        struct = schema.for_kind("scheduling.volcano.sh", "v1beta1", kind)
        assert struct is not None
        assert struct.description
        for name, node in struct.fields["spec"].struct.fields.items():  # type: ignore[union-attr]
            assert node.description, f"{kind}.spec.{name}"


def test_loading_is_quick_and_lazy() -> None:
    """In a fresh interpreter, so that nothing is loaded yet. The bound is far above the usual 15 ms."""
    script = (
        "import sys, msgspec, time\n"
        "from windlass.api.wire import schema\n"
        "begin = time.process_time()\n"
        "schema.for_kind('', 'v1', 'Pod').fields['spec'].struct.fields\n"
        "print(time.process_time() - begin)\n"
        "assert 'yaml' not in sys.modules\n"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert float(out) < 0.5
