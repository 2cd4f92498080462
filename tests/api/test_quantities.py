"""Quantities: exact values, engine units, and the texts that come back."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import quantities
from windlass.api.quantities import QuantityError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4", 4),
        ("500m", Fraction(1, 2)),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("100n", Fraction(1, 10**7)),
        ("1u", Fraction(1, 10**6)),
        ("2k", 2000),
        ("500G", 500 * 10**9),
        ("16Gi", 16 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("12e-1", Fraction(12, 10)),
        ("+3", 3),
        ("-3", -3),
    ],
)
def test_parse(text: str, value: Fraction) -> None:
    assert quantities.parse(text) == value


@pytest.mark.parametrize(
    "text", ["", "x", "1x", "1 Gi", "1..5", "Gi", "1gi", "1K", "--1", "0x10", "1e", "1Gi2"]
)
def test_invalid_quantities(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        quantities.parse(text)


@pytest.mark.parametrize("text", ["8Ei", "1e19", "9999999999999999999", "1e30", "16E"])
def test_values_are_lowered_to_the_maximum_of_the_api_server(text: str) -> None:
    assert quantities.parse(text) == 2**63 - 1
    assert quantities.parse(f"-{text}") == -(2**63 - 1)


@pytest.mark.parametrize("name", ["cpu", "memory", "pods", "nvidia.com/gpu"])
@pytest.mark.parametrize("text", ["8E", "9223372036854775807", "1e30"])
def test_amounts_without_limit_count_as_the_limit(name: str, text: str) -> None:
    assert quantities.to_units(name, text) == quantities.LIMIT
    assert quantities.bounded({name: quantities.to_units(name, text), "x": 1}) == {"x": 1}


@pytest.mark.parametrize("text", ["٢", "२Gi", "１", "1٢", "1e٢", "9" * 5000])
def test_digits_of_other_scripts_and_endless_ones_are_no_quantities(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        quantities.parse(text)


@pytest.mark.parametrize("text", ["0.5", "1500m", "5e-1", "100u", "2.0001"])
def test_extended_resources_are_integers(text: str) -> None:
    assert quantities.to_whole_units("cpu", text) >= 1
    for name in ("nvidia.com/gpu", "example.com/fpga"):
        with pytest.raises(QuantityError, match="must be an integer"):
            quantities.to_whole_units(name, text)


@pytest.mark.parametrize("text", ["1000m", "1e0", "10e-1", "1.", "1.0"])
def test_integers_of_extended_resources_in_any_spelling(text: str) -> None:
    assert quantities.to_whole_units("example.com/fpga", text) == 1


@pytest.mark.parametrize(
    ("name", "text", "units"),
    [
        ("cpu", "1", 1000),
        ("cpu", "1.5", 1500),
        ("cpu", "1u", 1),  # rounded up, never lost
        ("memory", "1Gi", 2**30),
        ("memory", "1500m", 2),
        ("nvidia.com/gpu", "2", 2000),
        ("nvidia.com/mig-1g.10gb", 1, 1000),
        ("rdma/roce_v2", "1", 1),
        ("pods", "110", 110),
        ("nvidia.com/gpumem", "4096", 4096),
    ],
)
def test_to_units(name: str, text: str | int, units: int) -> None:
    assert quantities.to_units(name, text) == units


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("nvidia.com/gpu", True),
        ("amd.com/gpu", True),
        ("huawei.com/Ascend910-npu", True),
        ("nvidia.com/mig-3g.20gb", True),
        ("gpu", False),
        ("cpu", False),
        ("rdma/roce_v2", False),
        ("volcano.sh/vgpu-number", True),
        ("volcano.sh/vgpu-memory", False),
        ("nvidia.com/gpu-memory", False),
        ("nvidia.com/gpumem", False),
        ("nvidia.com/gpucores", False),
        ("tke.cloud.tencent.com/qgpu-core", False),
        ("aliyun.com/gpu-core.percentage", False),
        ("cambricon.com/mlu.smlu.vmemory", False),
        ("cambricon.com/vmlu", True),
        ("hygon.com/dcunum", True),
        ("hygon.com/dcumem", False),
        ("huawei.com/Ascend910B3", True),
        ("huawei.com/Ascend910B3-memory", False),
        ("habana.ai/gaudi", True),
        ("gpu.intel.com/i915", True),
        ("gpu.intel.com/xe", True),
        ("aws.amazon.com/neuron", True),
        ("aws.amazon.com/neuroncore", True),
        ("kunlunxin.com/xpu", True),
        ("enflame.com/gcu", True),
        ("enflame.com/gcu-memory", False),
        ("iluvatar.ai/BI-V150-vgpu", True),
        ("iluvatar.ai/BI-V150.vMem", False),
        ("metax-tech.com/sgpu", True),
        ("vastaitech.com/va", True),
        ("birentech.com/gpu", True),
        ("mthreads.com/vgpu", True),
    ],
)
def test_what_is_a_device(name: str, device: bool) -> None:
    assert quantities.is_device(name) is device


@pytest.mark.parametrize(
    ("name", "units", "text"),
    [
        ("cpu", 2000, "2"),
        ("cpu", 1500, "1500m"),
        ("nvidia.com/gpu", 2000, "2"),
        ("nvidia.com/gpu", 500, "0.5"),
        ("memory", 2**30, "1Gi"),
        ("memory", 500 * 10**9, "500G"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("pods", 7, "7"),
    ],
)
def test_from_units(name: str, units: int, text: str) -> None:
    assert quantities.from_units(name, units) == text


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "pods"]), st.integers(0, 2**53))
def test_units_survive_their_text(name: str, units: int) -> None:
    if name == "nvidia.com/gpu":
        units = units % 10**6
    assert quantities.to_units(name, quantities.from_units(name, units)) == units


def test_vectors() -> None:
    left = quantities.to_vector({"cpu": "1", "nvidia.com/gpu": 2})
    right = quantities.to_vector({"cpu": "500m", "memory": "1Gi"})
    assert quantities.add(left, right) == {"cpu": 1500, "nvidia.com/gpu": 2000, "memory": 2**30}
    assert quantities.maximum([left, right]) == {"cpu": 1000, "nvidia.com/gpu": 2000, "memory": 2**30}
    assert quantities.to_vector(None) == {}
    assert quantities.fits({"cpu": 500, "absent": 0}, left)
    assert not quantities.fits({"memory": 1}, left)


def test_a_bad_vector_names_the_resource() -> None:
    with pytest.raises(QuantityError, match=r"memory: 'lots' is not a quantity"):
        quantities.to_vector({"cpu": "1", "memory": "lots"})
