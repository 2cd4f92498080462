"""The vocabularies of device shares: what each word means, and what contradicts itself."""

from __future__ import annotations

from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.devices import request_parser
from windlass.api.devices.annotations_read import ANNOTATIONS
from windlass.api.devices.request_parser import GPU, ContainerDeviceRequest, PodDeviceRequest


def limits(**amounts: str) -> dict[str, Any]:
    """One container with these limits."""
    return {"containers": [{"name": "main", "resources": {"limits": amounts}}]}


def read(spec: dict[str, Any] | None = None, **annotations: str) -> PodDeviceRequest:
    spec = spec or {"containers": [{"name": "main"}]}
    return request_parser.read(request_parser.amounts_of(spec), request_parser.annotation_words(annotations))


def one(spec: dict[str, Any] | None = None, **annotations: str) -> ContainerDeviceRequest:
    asked = read(spec, **annotations)
    assert asked.problems == ()
    assert len(asked.asks) == 1
    return asked.asks[0]


def amounts(ask: ContainerDeviceRequest) -> tuple[int, int, int, int]:
    return ask.count, ask.milli, ask.memory_mib, ask.memory_milli


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"gpu-fraction": "0.5"}, (1, 500, 0, 500)),
        ({"gpu-fraction": ".25"}, (1, 250, 0, 250)),
        ({"gpu-fraction": "+0.5"}, (1, 500, 0, 500)),
        ({"gpu-fraction": "5e-1"}, (1, 500, 0, 500)),
        ({"gpu-fraction": "25.E-2"}, (1, 250, 0, 250)),
        ({"gpu-fraction": "1."}, (1, 1000, 0, 1000)),
        ({"gpu-fraction": "1"}, (1, 1000, 0, 1000)),
        ({"gpu-fraction": "0.3333"}, (1, 334, 0, 334)),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, (2, 500, 0, 500)),
        ({"gpu-memory": "4096"}, (1, 0, 4096, 0)),
        ({"windlass.dev/gpu-memory": "10Gi"}, (1, 0, 10240, 0)),
        ({"windlass.dev/gpu-memory": "10G"}, (1, 0, 9537, 0)),
        ({"windlass.dev/gpu-compute": "30"}, (1, 300, 0, 0)),
        (
            {
                "windlass.dev/gpu-memory": "1Gi",
                "windlass.dev/gpu-compute": "30",
                "windlass.dev/gpu-count": "2",
            },
            (2, 300, 1024, 0),
        ),
    ],
)
def test_annotations(given: dict[str, str], meant: tuple[int, int, int, int]) -> None:
    assert amounts(one(None, **given)) == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "3000"}, (2, 0, 3000, 0)),
        ({"volcano.sh/vgpu-memory": "3000"}, (1, 0, 3000, 0)),
        ({"volcano.sh/vgpu-number": "2"}, (2, 0, 0, 1000)),
        ({"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-cores": "50"}, (1, 500, 0, 1000)),
        ({"volcano.sh/vgpu-memory-percentage": "25", "volcano.sh/vgpu-cores": "10"}, (1, 100, 0, 250)),
        ({"volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "0"}, (1, 0, 3000, 0)),
        ({"volcano.sh/gpu-memory": "1024"}, (1, 0, 1024, 0)),
        ({GPU: "2", "nvidia.com/gpumem": "3000"}, (2, 0, 3000, 0)),
        ({"nvidia.com/gpumem-percentage": "50"}, (1, 0, 0, 500)),
        ({GPU: "1", "nvidia.com/gpucores": "30"}, (1, 300, 0, 1000)),
        ({"aliyun.com/gpu-mem": "10"}, (1, 0, 10240, 0)),
        ({"aliyun.com/gpu-mem": "10", "aliyun.com/gpu-core": "30"}, (1, 300, 10240, 0)),
        ({"aliyun.com/gpu-mem": "10", "aliyun.com/gpu-core.percentage": "30"}, (1, 300, 10240, 0)),
        ({"aliyun.com/gpu-mem": "10", "aliyun.com/gpu-count": "2"}, (2, 0, 5120, 0)),
        (
            {"tke.cloud.tencent.com/qgpu-core": "30", "tke.cloud.tencent.com/qgpu-memory": "5"},
            (1, 300, 5120, 0),
        ),
    ],
)
def test_resources_of_a_container(given: dict[str, str], meant: tuple[int, int, int, int]) -> None:
    assert amounts(one(limits(**given))) == meant


@pytest.mark.parametrize(
    ("given", "cards"),
    [
        ({"volcano.sh/gpu-number": "2"}, 2),
        ({"aliyun.com/gpu-count": "2"}, 2),
        ({"tke.cloud.tencent.com/qgpu-core": "200"}, 2),
    ],
)
def test_requests_for_whole_devices(given: dict[str, str], cards: int) -> None:
    asked = read(limits(**given))
    assert (asked.asks, asked.problems) == ((), ())
    assert asked.whole == ((GPU, cards * 1000),)


def test_hami_device_count_is_not_an_amount_of_whole_devices() -> None:
    assert read(limits(**{GPU: "2", "nvidia.com/gpumem": "3000"})).taken == ((GPU, 2000),)
    assert read(limits(**{GPU: "2"})).taken == ()


def test_only_whole_devices_request_no_share() -> None:
    assert read(limits(**{GPU: "2", "cpu": "1"})) == PodDeviceRequest()
    assert read() == PodDeviceRequest()


@pytest.mark.parametrize(
    ("resource", "profile"),
    [
        ("nvidia.com/mig-1g.10gb", "1g.10gb"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb+me"),
        ("nvidia.com/mig-7g.80gb", "7g.80gb"),
        ("nvidia.com/mig-1g.24gb.me.all", "1g.24gb+me.all"),
        ("nvidia.com/mig-huge", ""),
        ("nvidia.com/gpu", ""),
    ],
)
def test_mig_profiles_and_their_resources(resource: str, profile: str) -> None:
    assert request_parser.profile_of(resource) == profile
    if profile:
        assert request_parser.resource_of(profile) == resource


def test_mig_by_resource_and_by_annotation() -> None:
    by_resource = one(limits(**{"nvidia.com/mig-1g.10gb": "2"}))
    assert (by_resource.profile, by_resource.count) == ("1g.10gb", 2)
    assert by_resource.taken == (("nvidia.com/mig-1g.10gb", 2000),)
    by_note = one(None, **{"nvidia.com/mig-1g.10gb.me": "1"})
    assert (by_note.profile, by_note.taken) == ("1g.10gb+me", ())


@pytest.mark.parametrize(
    ("spec", "annotations", "field", "words"),
    [
        ({}, {"gpu-fraction": "1.5"}, "gpu-fraction", "above 0 and at most 1"),
        ({}, {"gpu-fraction": "half"}, "gpu-fraction", "such as 0.5"),
        ({}, {"gpu-fraction": "-0.5"}, "gpu-fraction", "above 0"),
        ({}, {"gpu-fraction": "٠.٥"}, "gpu-fraction", "such as 0.5"),
        ({}, {"gpu-fraction": " 0.5"}, "gpu-fraction", "such as 0.5"),
        ({}, {"gpu-fraction": "1e999"}, "gpu-fraction", "at most 1"),
        ({}, {"gpu-fraction": "."}, "gpu-fraction", "such as 0.5"),
        ({}, {"gpu-fraction": "0.5e"}, "gpu-fraction", "such as 0.5"),
        ({}, {"gpu-fraction": "NaN"}, "gpu-fraction", "such as 0.5"),
        ({}, {"gpu-fraction": ""}, "gpu-fraction", "is empty"),
        ({}, {"gpu-memory": ""}, "gpu-memory", "is empty"),
        ({}, {"windlass.dev/gpu-memory": " "}, "windlass.dev/gpu-memory", "is empty"),
        ({}, {"gpu-fraction": "0"}, "gpu-fraction", "above 0"),
        ({}, {"gpu-memory": "4Gi"}, "gpu-memory", "MiB"),
        ({}, {"gpu-memory": "1", "gpu-fraction": "0.5"}, "gpu-memory", "gpu-fraction is given too"),
        (
            {},
            {"gpu-fraction-num-devices": "2"},
            "gpu-fraction-num-devices",
            "says nothing without gpu-fraction",
        ),
        (
            {},
            {"gpu-fraction": "0.5", "windlass.dev/gpu-memory": "1Gi"},
            "windlass.dev/gpu-memory",
            "given too",
        ),
        ({GPU: "1"}, {"gpu-fraction": "0.5"}, "gpu-fraction", "container main asks for whole GPUs"),
        ({"aliyun.com/gpu-mem": "1"}, {"gpu-fraction": "0.5"}, "gpu-fraction", "containers' limits ask"),
        (
            {"aliyun.com/gpu-mem": "1", "volcano.sh/vgpu-memory": "1"},
            {},
            "limits",
            "Volcano vGPU and aliyun.com",
        ),
        (
            {"aliyun.com/gpu-mem": "3", "aliyun.com/gpu-count": "2"},
            {},
            "aliyun.com/gpu-mem",
            "divided evenly",
        ),
        (
            {"aliyun.com/gpu-mem": "3", "aliyun.com/gpu-core": "2", "aliyun.com/gpu-core.percentage": "2"},
            {},
            "aliyun.com/gpu-core",
            "means the same",
        ),
        ({"volcano.sh/vgpu-cores": "101"}, {}, "volcano.sh/vgpu-cores", "from 0 to 100"),
        ({"volcano.sh/vgpu-memory": "1.5"}, {}, "volcano.sh/vgpu-memory", "whole number"),
        (
            {"volcano.sh/vgpu-memory": "1", "volcano.sh/vgpu-memory-percentage": "1"},
            {},
            "volcano.sh/vgpu-memory-percentage",
            "keep one",
        ),
        (
            {"volcano.sh/gpu-memory": "1", "volcano.sh/gpu-number": "1"},
            {},
            "volcano.sh/gpu-memory",
            "whole GPUs",
        ),
        ({"tke.cloud.tencent.com/qgpu-core": "150"}, {}, "qgpu-core", "no multiple of 100"),
        ({"hygon.com/dcumem": "1000"}, {}, "hygon.com/dcumem", "not known here"),
        ({}, {"nvidia.com/mig-big": "1"}, "nvidia.com/mig-big", "no MIG profile"),
        ({}, {"windlass.dev/gpu-memory": "12"}, "windlass.dev/gpu-memory", "at least 1Mi"),
        ({}, {"windlass.dev/gpu-memory": "x"}, "windlass.dev/gpu-memory", "not a quantity"),
        ({}, {"windlass.dev/gpu-compute": "0"}, "windlass.dev/gpu-compute", "from 1 to 100"),
        ({}, {"windlass.dev/gpu-count": "2"}, "windlass.dev/gpu-count", "says nothing without"),
        (
            {},
            {"windlass.dev/gpu-compute": "9", "windlass.dev/gpu-sharing": "slices"},
            "gpu-sharing",
            "by its memory alone",
        ),
        ({}, {"windlass.dev/gpu-memory": "1Gi", "windlass.dev/gpu-sharing": "no"}, "gpu-sharing", '"any"'),
        ({}, {"windlass.dev/gpu-min-capability": "new"}, "gpu-min-capability", "such as 8.0"),
        ({}, {"volcano.sh/vgpu-mode": "mps2"}, "vgpu-mode", "hami-core"),
        (
            {"volcano.sh/vgpu-number": "1"},
            {"volcano.sh/vgpu-mode": "mig"},
            "vgpu-mode",
            "chosen by its memory",
        ),
        (
            {"volcano.sh/vgpu-memory": "1", "volcano.sh/vgpu-cores": "5"},
            {"volcano.sh/vgpu-mode": "mig"},
            "vgpu-mode",
            "leave the words on cores out",
        ),
        ({}, {"volcano.sh/vgpu-podgroup-policy": "pack"}, "vgpu-podgroup-policy", '"spread"'),
        ({}, {"hami.io/gpu-scheduler-policy": "mutex"}, "gpu-scheduler-policy", '"binpack"'),
    ],
)
def test_contradictory_requests(
    spec: dict[str, str], annotations: dict[str, str], field: str, words: str
) -> None:
    problems = read(limits(**spec), **annotations).problems
    assert len(problems) == 1, problems
    assert field in problems[0].field
    assert words in problems[0].message


def test_a_claim_on_memory_alone_may_be_a_slice_or_a_share() -> None:
    memory = limits(**{"volcano.sh/vgpu-memory": "9000"})
    assert (one(memory).slices, one(memory).shares) == (True, True)
    sliced = one(memory, **{"volcano.sh/vgpu-mode": "mig"})
    assert (sliced.slices, sliced.shares) == (True, False)
    shared = one(memory, **{"volcano.sh/vgpu-mode": "hami-core"})
    assert (shared.slices, shared.shares) == (False, True)
    assert not one(None, **{"gpu-memory": "5"}).slices
    assert not one(limits(**{"aliyun.com/gpu-mem": "1", "aliyun.com/gpu-core": "5"})).slices
    own = {"windlass.dev/gpu-memory": "10Gi"}
    assert one(None, **own).slices
    assert not one(None, **own, **{"windlass.dev/gpu-sharing": "shares"}).slices
    assert not one(None, **own, **{"windlass.dev/gpu-sharing": "slices"}).shares


def test_device_preferences() -> None:
    requirements = read(
        limits(**{GPU: "1"}),
        **{
            "nvidia.com/use-gputype": "A100,H100",
            "windlass.dev/gpu-model-not": "PCIe",
            "volcano.sh/vgpu-use-gpuuuid": "GPU-1, GPU-2",
            "nvidia.com/nouse-gpuuuid": "GPU-2",
            "windlass.dev/gpu-min-memory": "40Gi",
            "windlass.dev/gpu-min-capability": "8.0",
            "hami.io/gpu-scheduler-policy": "spread",
        },
    ).requirements
    assert requirements.models == ("A100", "H100")
    assert requirements.models_not == ("PCIe",)
    assert requirements.uuids == ("GPU-1", "GPU-2")
    assert requirements.uuids_not == ("GPU-2",)
    assert requirements.min_memory_mib == 40960
    assert requirements.min_compute == (8, 0)
    assert requirements.pack is False


def test_two_containers_have_separate_requests() -> None:
    spec = {
        "containers": [
            {"name": "a", "resources": {"limits": {"aliyun.com/gpu-mem": 4}}},
            {"name": "b", "resources": {"limits": {"aliyun.com/gpu-mem": 6}}},
        ]
    }
    assert [(ask.container, ask.memory_mib) for ask in read(spec).asks] == [("a", 4096), ("b", 6144)]
    assert request_parser.containers_asking({"spec": spec}) == {"a": 1, "b": 1}


def test_init_container_uses_at_most_the_devices_of_later_containers() -> None:
    spec = {
        "initContainers": [{"name": "prepare", "resources": {"limits": {"aliyun.com/gpu-mem": "4"}}}],
        "containers": [{"name": "a", "resources": {"limits": {"aliyun.com/gpu-mem": "4"}}}],
    }
    assert one(spec).container == "a"
    spec["initContainers"][0]["resources"]["limits"] = {"volcano.sh/vgpu-memory-percentage": "50"}
    assert "in the same resources" in read(spec).problems[0].message
    spec["initContainers"][0]["restartPolicy"] = "Always"  # a sidecar: it runs at the same time
    assert [ask.container for ask in read(spec).asks] == ["prepare", "a"]


def test_pod_gets_the_larger_amount_of_init_containers_and_containers() -> None:
    """As for every resource in Kubernetes."""

    def asked(init: dict[str, Any], *running: dict[str, Any]) -> Any:
        named = [{"name": f"c{at}", "resources": {"limits": limits}} for at, limits in enumerate(running)]
        return read({"initContainers": [{"name": "i", "resources": {"limits": init}}], "containers": named})

    small, large = {GPU: "1", "nvidia.com/gpumem": "4000"}, {GPU: "1", "nvidia.com/gpumem": "9000"}
    found = asked(large, small)
    assert not found.problems
    assert [(ask.container, ask.memory_mib) for ask in found.asks] == [("c0", 9000)]
    assert dict(found.asks[0].words)["nvidia.com/gpumem"] == 9000
    assert [ask.memory_mib for ask in asked(large, small, small).asks] == [9000, 4000]
    assert [ask.memory_mib for ask in asked(small, large).asks] == [9000]
    compute = {GPU: "1", "nvidia.com/gpumem": "100", "nvidia.com/gpucores": "60"}
    assert [(ask.milli, ask.memory_mib) for ask in asked(compute, small).asks] == [(600, 4000)]
    assert asked({**large, GPU: "2"}, small).problems
    assert asked(large).problems


@pytest.mark.parametrize(
    ("memory", "milli", "mib"),
    [("1", 250, 16384), ("16384", 250, 16384), ("20000", 500, 32768), ("40000", 1000, 40000)],
)
def test_ascend_chips_are_allocated_by_template(memory: str, milli: int, mib: int) -> None:
    chip = "huawei.com/Ascend910B3"
    ask = one(limits(**{chip: "1", f"{chip}-memory": memory}))
    assert (ask.resource, ask.milli, ask.memory_mib, ask.taken) == (chip, milli, mib, ((chip, 1000),))


def test_ascend_chips_of_unknown_templates_are_allocated_whole_only() -> None:
    assert "not known here" in read(limits(**{"huawei.com/Ascend910A-memory": "1"})).problems[0].message
    assert "by its memory" in read(limits(**{"huawei.com/Ascend910B3-core": "1"})).problems[0].message


def test_resources_that_queues_can_count() -> None:
    assert one(limits(**{"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "3000"})).words == (
        ("volcano.sh/vgpu-memory", 6000),
        ("volcano.sh/vgpu-number", 2000),
    )
    assert one(limits(**{"aliyun.com/gpu-mem": "10", "aliyun.com/gpu-count": "2"})).words == (
        ("aliyun.com/gpu-count", 2000),
        ("aliyun.com/gpu-mem", 10),
    )


@pytest.mark.parametrize(
    ("pod", "asking"),
    [
        ({"spec": limits(**{GPU: "2"})}, {"main": 2}),
        ({"spec": limits(**{"tke.cloud.tencent.com/qgpu-core": "200"})}, {"main": 2}),
        ({"spec": limits(**{"volcano.sh/gpu-number": "3"})}, {"main": 3}),
        ({"spec": limits(**{"nvidia.com/mig-1g.10gb": "2"})}, {"main": 2}),
        ({"spec": limits(**{GPU: "2", "nvidia.com/gpumem": "9"})}, {"main": 2}),
        (
            {"metadata": {"annotations": {"gpu-fraction": "0.5"}}, "spec": {"containers": [{"name": "x"}]}},
            {"x": 1},
        ),
        (
            {
                "metadata": {"annotations": {"gpu-fraction": "0.5", "gpu-fraction-container-name": "y"}},
                "spec": {"containers": [{"name": "x"}, {"name": "y"}]},
            },
            {"y": 1},
        ),
        ({"spec": {"containers": [{"name": "x"}]}}, {}),
        ({}, {}),
    ],
)
def test_container_that_requests_devices(pod: dict[str, Any], asking: dict[str, int]) -> None:
    assert request_parser.containers_asking(pod) == asking


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (ContainerDeviceRequest("", milli=500, memory_milli=500), "0.5 of a GPU"),
        (ContainerDeviceRequest("", count=2, milli=500, memory_milli=500), "0.5 of each of 2 GPUs"),
        (ContainerDeviceRequest("", memory_mib=10240), "10240 MiB of a GPU"),
        (
            ContainerDeviceRequest("", memory_mib=10240, milli=300),
            "10240 MiB and 30% of the compute of a GPU",
        ),
        (
            ContainerDeviceRequest("", memory_milli=250, milli=100),
            "25% of the memory and 10% of the compute of a GPU",
        ),
        (ContainerDeviceRequest("", milli=300), "30% of the compute of a GPU"),
        (
            ContainerDeviceRequest("", "huawei.com/Ascend910B3", milli=250, memory_mib=16384),
            "16384 MiB and 25% of the compute of a huawei.com/Ascend910B3",
        ),
        (ContainerDeviceRequest("", profile="1g.10gb"), "MIG slice 1g.10gb"),
        (ContainerDeviceRequest("", profile="1g.10gb", count=2), "2 MIG slices 1g.10gb"),
    ],
)
def test_requests_as_text(ask: ContainerDeviceRequest, words: str) -> None:
    assert request_parser.described(ask) == words


_AMOUNTS = st.sampled_from(["0", "1", "2", "50", "100", "150", "1.5", "-1", "4Gi", "x", "", "1e30"])
_RESOURCES = st.sampled_from(
    [
        *sorted(request_parser.WORDS),
        GPU,
        "nvidia.com/mig-1g.5gb",
        "nvidia.com/mig-x",
        "huawei.com/Ascend910B3-memory",
    ]
)
_NOTES = st.sampled_from([*sorted(ANNOTATIONS), "nvidia.com/mig-1g.5gb", "nvidia.com/mig-x", "other.com/x"])
_TEXTS = st.sampled_from(
    ["0.5", "1", "2", "10Gi", "A100,H100", "spread", "mig", "slices", "8.0", "", "x", "9" * 40]
)


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.dictionaries(_RESOURCES, _AMOUNTS, max_size=4), max_size=3),
    st.dictionaries(_NOTES, _TEXTS, max_size=5),
)
def test_any_text_is_read_or_reported(containers: list[dict[str, str]], annotations: dict[str, str]) -> None:
    spec = {
        "containers": [
            {"name": f"c{at}", "resources": {"limits": amounts}} for at, amounts in enumerate(containers)
        ]
    }
    asked = read(spec, **annotations)
    for ask in asked.asks:
        assert request_parser.described(ask)
        assert ask.count >= 1
        assert 0 <= ask.milli <= 1000
        assert 0 <= ask.memory_milli <= 1000
        assert ask.memory_mib >= 0
    if not asked.problems:
        request_parser.containers_asking({"metadata": {"annotations": annotations}, "spec": spec})
