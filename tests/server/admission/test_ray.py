"""Warnings about fields of Ray's kinds without an effect."""

from __future__ import annotations

import pytest
from memory_admission import World
from ray_world import cluster_spec, ray_cluster, ray_job, ray_service


@pytest.mark.parametrize(
    ("manifest", "field"),
    [
        (ray_cluster(gcsFaultToleranceOptions={"redisAddress": "r:6379"}), "spec.gcsFaultToleranceOptions"),
        (ray_cluster(upgradeStrategy={"type": "Recreate"}), "spec.upgradeStrategy"),
        (
            ray_job(rayClusterSpec=cluster_spec(0, authOptions={"mode": "token"})),
            "spec.rayClusterSpec.authOptions",
        ),
        (
            ray_service(rayClusterConfig={**cluster_spec(0), "gcsFaultToleranceOptions": {"a": "b"}}),
            "spec.rayClusterConfig.gcsFaultToleranceOptions",
        ),
    ],
)
def test_fields_without_effect_are_told_once(manifest, field) -> None:
    world = World()
    reviewed = world.create(manifest)
    assert [text for text in reviewed.warnings if f"{field} has no effect" in text]
    assert not [text for text in world.update(reviewed.object).warnings if "has no effect" in text]


def test_nothing_is_told_about_fields_with_an_effect() -> None:
    for manifest in (ray_cluster(upgradeStrategy={"type": "None"}), ray_job(), ray_service()):
        assert not [text for text in World().create(manifest).warnings if "has no effect" in text]
