"""The end of a namespace."""

from __future__ import annotations

import asyncio
from typing import Any

from fakeapi import FakeApi

from windlass.api.resources import CONFIG_MAPS, NAMESPACES, PODS, SECRETS
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.namespace.controller import CONTENT, NamespaceController
from windlass.controllers.namespace.reconcile import Content, NamespaceSnapshot, reconcile

Json = dict[str, Any]


def namespace(**metadata: Any) -> Json:
    return {
        "metadata": {"name": "team", "uid": "u", "deletionTimestamp": "2026-01-01T12:00:00Z", **metadata},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating"},
    }


def test_one_that_lives_is_left_alone() -> None:
    living = namespace()
    del living["metadata"]["deletionTimestamp"]
    assert reconcile(living, NamespaceSnapshot({PODS: [Content("p", "u", False)]}, 0.0)).stages == ()


def test_content_is_deleted_first() -> None:
    found = {
        PODS: [Content("p", "u1", False), Content("q", "u2", True)],
        SECRETS: [Content("s", "u3", False)],
    }
    effects = reconcile(namespace(), NamespaceSnapshot(found, 0.0))
    assert [(d.resource, d.name, d.uid) for d in effects.deletes] == [(PODS, "p", "u1"), (SECRETS, "s", "u3")]
    assert effects.requeue_after == 0.1
    assert effects.updates == []


def test_what_remains_is_told() -> None:
    found = {
        PODS: [Content("q", "u2", True)],
        CONFIG_MAPS: [Content("c", "u3", True, ("a.io/x",)), Content("d", "u4", True, ("a.io/x",))],
    }
    effects = reconcile(namespace(), NamespaceSnapshot(found, 0.0))
    (patch,) = effects.patches
    conditions = {
        c["type"]: (c["status"], c["reason"], c["message"]) for c in patch.patch["status"]["conditions"]
    }
    assert conditions == {
        "NamespaceDeletionDiscoveryFailure": (
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        "NamespaceContentRemaining": (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 2 resource instances, pods. has 1 resource instances",
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: a.io/x in 2 resource instances",
        ),
    }
    told = namespace()
    told["status"]["conditions"] = patch.patch["status"]["conditions"]
    again = reconcile(told, NamespaceSnapshot(found, 500.0))
    assert (again.stages, again.requeue_after) == ((), 1.0)


def test_when_empty_it_is_let_go() -> None:
    effects = reconcile(namespace(), NamespaceSnapshot({PODS: []}, 0.0))
    (update,) = effects.updates
    assert update.subresource == "finalize"
    assert update.object["spec"]["finalizers"] == []


def test_other_finalizers_stay() -> None:
    held = namespace()
    held["spec"]["finalizers"] = ["kubernetes", "mine"]
    (update,) = reconcile(held, NamespaceSnapshot({}, 0.0)).updates
    assert update.object["spec"]["finalizers"] == ["mine"]
    assert reconcile(update.object, NamespaceSnapshot({}, 0.0)).stages == ()


def test_every_namespaced_kind_is_looked_at_once() -> None:
    assert PODS in CONTENT
    assert NAMESPACES not in CONTENT
    assert len({(r.group, r.plural) for r in CONTENT}) == len(CONTENT)
    assert len([r for r in CONTENT if r.group == "batch.volcano.sh" and r.plural == "jobs"]) == 1
    assert len([r for r in CONTENT if r.plural == "events"]) == 1


def test_with_an_api() -> None:
    api = FakeApi()
    api.put(NAMESPACES, namespace())
    controller = NamespaceController(api, api, api.clock)  # type: ignore[arg-type]
    for number in range(3):
        api.put(SECRETS, {"metadata": {"name": f"s{number}", "namespace": "team"}})
    api.put(SECRETS, {"metadata": {"name": "other", "namespace": "default"}})
    executor = EffectExecutor(api)  # type: ignore[arg-type]

    async def reconcile() -> Effects:
        effects = await controller.reconcile("team")
        await executor.perform(effects)
        return effects

    assert len(asyncio.run(reconcile()).deletes) == 3
    assert len(asyncio.run(reconcile()).updates) == 1
    assert [s["metadata"]["name"] for s in api.objects(SECRETS)] == ["other"]
    assert asyncio.run(reconcile()).stages == ()
