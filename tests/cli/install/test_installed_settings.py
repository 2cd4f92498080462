"""What is installed stays where nothing else is said; remedies name the cluster that was meant."""

from __future__ import annotations

from typing import Any, cast

import pytest

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, Resource
from windlass.app import settings
from windlass.app.scheduler_extras import reservation_pod_options
from windlass.cli import errors
from windlass.cli.install import bind_guard, deploy, gpu_sharing, installed_settings, objects, remove
from windlass.cli.install.objects import NAMESPACE, SECRETS, InstalledComponent, InstallOptions
from windlass.cli.invocation import InvocationContext
from windlass.client.blocking import BlockingClient
from windlass.client.responses import ListResult
from windlass.scheduler.options import ReservationPodOptions

Json = dict[str, Any]
PROOF = bind_guard.GuardCredentials("authority", "certificate", "key", "token")


class Installed:
    """A cluster in which ``wishes`` are installed; nothing can be written."""

    def __init__(self, options: InstallOptions) -> None:
        self.objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects.objects(options)}

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        assert (resource, namespace) in {(kind, NAMESPACE) for kind in (DEPLOYMENTS, CONFIG_MAPS, SECRETS)}
        return self.objects.get((resource.kind, name))

    def read(self) -> InstallOptions:
        return installed_settings.as_installed(cast(BlockingClient, self), NAMESPACE)


def test_everything_that_was_said_is_found_again() -> None:
    said = InstallOptions(
        image="r/w:2",
        replicas=3,
        scheduler_names=("windlass", "volcano"),
        configuration="actions: allocate\n",
        settings="log: {level: debug}\n",
        beside=("volcano",),
        grouped=("kai-scheduler",),
        proof=PROOF,
    )
    found = Installed(said).read()
    assert found.parts == {name: InstalledComponent("r/w:2", 3) for name in objects.DEPLOYED}
    again = objects.objects(installed_settings.keep(InstallOptions(), found))
    assert again == objects.objects(said)
    assert installed_settings.kept_text(InstallOptions(), found, guard=True, sharing=True) == (
        "image r/w:2; instances 3; scheduler names windlass, volcano; scheduler configuration; settings; bind guard"
    )


def test_what_is_said_now_wins_and_the_defaults_are_nobodys_choice() -> None:
    found = Installed(InstallOptions()).read()
    assert installed_settings.kept_text(InstallOptions(), found, guard=True, sharing=True) == ""
    assert found.parts["windlass-scheduler"].image == ""  # of a newer version it will be that one's
    told = InstallOptions(
        image="r/w:3", replicas=1, scheduler_names=("a",), configuration="actions: backfill\n"
    )
    kept = installed_settings.keep(
        told, Installed(InstallOptions(image="r/w:2", replicas=3, scheduler_names=("b",))).read()
    )
    (scheduler,) = (
        o
        for o in objects.objects(kept)
        if o["metadata"]["name"] == "windlass-scheduler" and o["kind"] == "Deployment"
    )
    (container,) = scheduler["spec"]["template"]["spec"]["containers"]
    assert (scheduler["spec"]["replicas"], container["image"]) == (1, "r/w:3")
    assert [word for word in container["args"] if word.startswith("--scheduler-name")] == [
        "--scheduler-name=a"
    ]
    assert installed_settings.kept_text(told, found, guard=True, sharing=True) == ""


def test_a_default_image_goes_along_with_the_version() -> None:
    old = Installed(InstallOptions())
    for (kind, _), obj in old.objects.items():
        if kind == DEPLOYMENTS.kind:
            obj["metadata"]["labels"]["app.kubernetes.io/version"] = "0.0.1"
            obj["spec"]["template"]["spec"]["containers"][0]["image"] = "windlass:0.0.1"
            obj["spec"]["replicas"] = 0  # somebody has stopped it
    found = old.read()
    assert objects.objects(installed_settings.keep(InstallOptions(replicas=2), found)) == objects.objects(
        InstallOptions()
    )
    assert installed_settings.kept_text(InstallOptions(), found, guard=True, sharing=True) == "instances 0"


class Refusing:
    """A cluster that has nothing, and answers to writes with an error."""

    def __init__(self, error: StatusError) -> None:
        self.error = error

    def find(self, *_: object) -> None:
        return None

    def patch(self, *_: object, dry_run: bool, **__: object) -> Json:
        assert dry_run
        raise self.error


def conflict(*fields: str) -> StatusError:
    said = 'conflict with "kubectl-edit" using apps/v1'
    causes = [{"reason": "FieldManagerConflict", "message": said, "field": field} for field in fields]
    return StatusError({"code": 409, "reason": "Conflict", "details": {"causes": causes}})


def test_what_is_to_go_is_asked_about_before_anything_is_written() -> None:
    class Guarded(Refusing):
        def find(self, resource: Resource, *_: object) -> None:
            if resource is objects.WEBHOOKS:
                raise StatusError({"code": 403, "message": "may not get webhooks"})

        def patch(self, *_: object, dry_run: bool, **__: object) -> Json:
            assert dry_run
            return {}

    cluster = cast(BlockingClient, Guarded(StatusError({"code": 500})))
    wanted = objects.objects(InstallOptions(crds=False))
    deploy.rehearse(cluster, wanted, force=False)
    with pytest.raises(WindlassError, match="nothing was written") as caught:
        deploy.rehearse(cluster, wanted, remove.guard_plans("team"), force=False)
    assert (caught.value.code, caught.value.evidence) == ("WL-INSTALL-403", "may not get webhooks")


def test_a_kind_that_cannot_go_to_this_version_is_told_before_anything_is_written() -> None:
    cluster = cast(
        BlockingClient, Refusing(StatusError({"code": 422, "message": "status.storedVersions[1]"}))
    )
    with pytest.raises(WindlassError, match="cannot be updated to this version") as caught:
        deploy.rehearse(cluster, objects.definitions(), force=False)
    assert (caught.value.code, caught.value.remedies) == ("WL-INSTALL-409", ("windlass upgrade --check",))


def test_a_binding_may_come_before_its_role_is_looked_at() -> None:
    class Strict(Refusing):
        """The server looks at the role that is bound; ``there``: kinds of which it has all."""

        there = frozenset[str]()

        def find(self, resource: Resource, name: str, *_: object) -> Json | None:
            return {"metadata": {"name": name}} if resource.kind in self.there else None

        def patch(self, resource: Resource, *_: object, dry_run: bool, **__: object) -> Json:
            assert dry_run
            if resource.kind == "RoleBinding":
                raise self.error
            return {}

    cluster = Strict(StatusError({"code": 404, "message": "no such role"}))
    wanted = [obj for obj in objects.objects(InstallOptions()) if obj["kind"] in ("Role", "RoleBinding")]
    deploy.rehearse(cast(BlockingClient, cluster), wanted, force=False)
    cluster.there = frozenset({"Role"})
    with pytest.raises(StatusError, match="no such role"):
        deploy.rehearse(cast(BlockingClient, cluster), wanted, force=False)


class Two:
    """Windlass in the namespaces ``spaces``."""

    def __init__(self, *spaces: str) -> None:
        self.spaces = spaces

    def list(self, resource: Resource, labels: str) -> ListResult:
        assert (resource, labels) == (DEPLOYMENTS, "app.kubernetes.io/part-of=windlass")
        return ListResult([{"metadata": {"namespace": space}} for space in self.spaces], "1")

    def find(self, resource: Resource, name: str, namespace: str) -> Json | None:
        assert (resource, name in objects.DEPLOYED) == (DEPLOYMENTS, True)
        return {} if namespace in self.spaces else None


def test_a_cluster_has_one_windlass() -> None:
    cluster = cast(BlockingClient, Two("a"))
    installed_settings.reject_second(cluster, "a")
    installed_settings.reject_absent(cluster, "a")
    with pytest.raises(WindlassError, match="already installed in namespace a") as caught:
        installed_settings.reject_second(cluster, "b")
    assert caught.value.remedies == ("windlass install -n a", "windlass uninstall -n a")
    with pytest.raises(WindlassError, match="not installed in namespace b, but in a"):
        installed_settings.reject_absent(cluster, "b")
    installed_settings.reject_absent(cast(BlockingClient, Two("a", "b")), "b")  # one of the two may go
    assert installed_settings.others(cast(BlockingClient, Two("a", "b")), "b") == ["a"]


def test_what_two_share_stays_when_one_goes() -> None:
    def kinds(*, purge: bool, alone: bool) -> set[str]:
        cluster = cast(BlockingClient, Holding([]))
        leaving = remove.all_objects(cluster, "b", purge=purge, alone=alone)
        return {one.resource.kind for one in leaving}

    shared = {"CustomResourceDefinition", "PriorityClass"}
    assert kinds(purge=True, alone=True) & shared == shared
    assert kinds(purge=False, alone=True) & shared == {"PriorityClass"}
    assert not kinds(purge=True, alone=False) & shared
    assert {"Deployment", "Namespace", "Lease"} <= kinds(purge=True, alone=False)


def test_fields_that_are_as_the_user_says_are_no_conflict() -> None:
    wanted = [obj for obj in objects.objects(InstallOptions()) if obj["kind"] == DEPLOYMENTS.kind]
    image = '.spec.template.spec.containers[name="scheduler"].image'
    own = Refusing(conflict(".spec.replicas", image))
    deploy.rehearse(cast(BlockingClient, own), wanted, force=False)
    mixed = Refusing(conflict(".spec.replicas", ".spec.strategy.type"))
    with pytest.raises(WindlassError, match="other clients have changed") as caught:
        deploy.rehearse(cast(BlockingClient, mixed), wanted, force=False)
    assert caught.value.code == "WL-INSTALL-409"
    assert ".spec.strategy.type" in caught.value.evidence
    assert ".spec.replicas" not in caught.value.evidence
    broken = Refusing(StatusError({"code": 422, "message": "not valid"}))
    with pytest.raises(StatusError, match="not valid"):
        deploy.rehearse(cast(BlockingClient, broken), wanted, force=False)


def test_remedies_name_the_cluster_that_was_meant() -> None:
    remedies = (
        "windlass install",
        "kubectl get pods",
        "windlass up",
        "windlass up   (if it is this machine's control plane)",
        "did you mean team?",
        "windlass --context b ps",
    )
    gone = WindlassError("WL-X-404", "gone", evidence="why", remedies=remedies)
    told = errors.with_target(gone, InvocationContext(target_flags="--context a"))
    assert told.remedies == (
        "windlass --context a install",
        "kubectl --context a get pods",
        "windlass up",
        "windlass up   (if it is this machine's control plane)",
        "did you mean team?",
        "windlass --context b ps",
    )
    assert (told.code, told.message, told.evidence) == ("WL-X-404", "gone", "why")


def test_a_right_that_is_missing_is_named() -> None:
    words = 'pods is forbidden: User "a" cannot list resource "pods" in API group "" in the namespace "team"'
    told = errors.translate(StatusError({"code": 403, "message": words, "details": {"kind": "pods"}}))
    assert told.remedies[0] == "kubectl auth can-i list pods -n team"


SETTINGS = "# by hand\nlog: {level: debug}\nscheduler: {reservationRuntimeClass: ''}\n"


def test_shared_cards_are_kept_with_what_the_user_says_of_them() -> None:
    said = InstallOptions(
        image="r/w:2", settings=SETTINGS, scheduler_names=("windlass", "volcano"), gpu_sharing=True
    )
    first = Installed(said)
    text = first.objects[(CONFIG_MAPS.kind, "windlass-settings")]["data"]["settings.yaml"]
    values = {**settings.defaults(), **settings.read(text, "settings.yaml")}
    assert reservation_pod_options(values) == ReservationPodOptions("r/w:2", runtime_class="")
    policy = first.objects[(gpu_sharing.POLICIES.kind, gpu_sharing.RESERVATION_NAMESPACE)]["spec"]
    assert (
        policy["matchConditions"][0]["expression"] == 'object.spec.schedulerName in ["windlass", "volcano"]'
    )
    found = first.read()
    assert objects.objects(installed_settings.keep(InstallOptions(), found)) == objects.objects(said)
    assert "settings; GPU sharing" in installed_settings.kept_text(
        InstallOptions(), found, guard=True, sharing=True
    )
    # The holders' image goes along with the scheduler's, and nothing else is touched where it is switched off.
    newer = Installed(installed_settings.keep(InstallOptions(image="r/w:3"), found))
    assert "r/w:3" in newer.objects[(CONFIG_MAPS.kind, "windlass-settings")]["data"]["settings.yaml"]
    off = gpu_sharing.with_image(text, "")
    assert settings.read(off, "settings.yaml") == settings.read(SETTINGS, "settings.yaml")
    assert gpu_sharing.with_image(SETTINGS, "") == SETTINGS  # with its comments
    assert gpu_sharing.with_image(text, "r/w:2") == text


def test_shared_cards_with_another_namespace_and_without_the_policy() -> None:
    whole = objects.objects(InstallOptions(namespace="team", gpu_sharing=True, crds=False))
    of_sharing = [obj for obj in whole if "reservations" in str(obj["metadata"])]
    assert {obj["kind"] for obj in of_sharing} >= {"Namespace", "Role", "RoleBinding", "PodDisruptionBudget"}
    assert {obj["metadata"].get("namespace", gpu_sharing.RESERVATION_NAMESPACE) for obj in of_sharing} == {
        gpu_sharing.RESERVATION_NAMESPACE
    }
    (binding,) = (obj for obj in whole if obj["kind"] == gpu_sharing.POLICY_BINDINGS.kind)
    (policy,) = (obj for obj in whole if obj["kind"] == gpu_sharing.POLICIES.kind)
    assert binding["spec"]["policyName"] == policy["metadata"]["name"] == "team.windlass-reservations"
    (rights,) = (obj for obj in of_sharing if obj["kind"] == "RoleBinding")
    assert rights["subjects"][0]["namespace"] == "team"
    without = objects.objects(InstallOptions(gpu_sharing=True, inject=False, crds=False))
    assert not {obj["kind"] for obj in without} & {policy["kind"], binding["kind"]}
    plain = objects.objects(InstallOptions(crds=False))
    assert "reservation" not in str(plain)


class Holding:
    """A cluster in which pods hold cards."""

    def __init__(self, pods: list[Json]) -> None:
        self.pods = pods

    def list(self, resource: Resource, namespace: str) -> ListResult:
        assert (resource, namespace) == (PODS, gpu_sharing.RESERVATION_NAMESPACE)
        return ListResult(self.pods, "1")


def test_what_protects_held_cards_stays_until_none_is() -> None:
    def going(pods: list[Json]) -> list[str]:
        return [obj["kind"] for obj in gpu_sharing.removable_objects(cast(BlockingClient, Holding(pods)))]

    assert going([{}]) == [
        "MutatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "RoleBinding",
        "Role",
    ]
    assert going([])[-1] == "Namespace"
    assert len(going([])) == 7
