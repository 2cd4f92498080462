"""Engine options: flags in a scheduler ConfigMap, as a layer next to the policy (Y22, D3)."""

from __future__ import annotations

from typing import Any

from windlass.model.engine_options import is_flags, of_config_maps, stated

POLICY = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n"


def config_map(namespace: str, text: str) -> dict[str, Any]:
    metadata = {"name": "volcano-scheduler-config", "namespace": namespace}
    return {"metadata": metadata, "data": {"volcano-scheduler.conf": text}}


def test_the_content_tells_flags_from_a_policy() -> None:
    assert is_flags("# tuning\n--bind-worker-threads=8\n")
    assert not is_flags(POLICY)
    assert not is_flags("---\n")
    assert not is_flags("")


def test_d3_flags_are_a_layer_of_their_own() -> None:
    maps = [
        config_map("volcano-system", POLICY),
        config_map("default", "--bind-worker-threads=8\n--min-resync-interval=12h\n"),
    ]
    assert [(o.name, o.value, o.source) for o in of_config_maps(maps)] == [
        ("bind-worker-threads", "8", "default/volcano-scheduler-config"),
        ("min-resync-interval", "12h", "default/volcano-scheduler-config"),
    ]


def test_of_one_name_the_last_config_map_counts() -> None:
    maps = [config_map("a", "--bind-worker-threads=8\n"), config_map("b", "--bind-worker-threads=4\n")]
    assert [(o.value, o.source) for o in of_config_maps(maps)] == [("4", "b/volcano-scheduler-config")]


def test_a_wrong_value_is_ignored_with_its_reason() -> None:
    (option,) = stated("--min-resync-interval=soon")
    assert option.effect.startswith("ignored: 'soon' is not a duration")
