"""Selectors of devices: what is served, what is refused, and what a device without an attribute means."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.devices import cel

GPU = cel.Subject(
    "gpu.nvidia.com",
    {
        "gpu.nvidia.com": {
            "type": "gpu",
            "productName": "NVIDIA H100 80GB HBM3",
            "index": 3,
            "cudaComputeCapability": cel.semver("9.0.0"),
            "healthy": True,
        }
    },
    {"gpu.nvidia.com": {"memory": Fraction(80 * 2**30)}},
)


@pytest.mark.parametrize(
    "expression",
    [
        "true",
        "device.driver == 'gpu.nvidia.com'",
        "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'",
        'device.attributes["gpu.nvidia.com"]["type"] != "mig"',
        "device.attributes['gpu.nvidia.com'].productName.matches('^NVIDIA H[12]00')",
        "device.attributes['gpu.nvidia.com'].productName.lowerAscii().contains('h100')",
        "device.attributes['gpu.nvidia.com'].productName.startsWith('NVIDIA')",
        "device.attributes['gpu.nvidia.com'].productName.endsWith('HBM3')",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
        "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('40Gi'))",
        "!device.capacity['gpu.nvidia.com'].memory.isLessThan(quantity('80Gi'))",
        "device.attributes['gpu.nvidia.com'].cudaComputeCapability.compareTo(semver('8.0.0')) > 0",
        "device.attributes['gpu.nvidia.com'].cudaComputeCapability.isLessThan(semver('10.0.0'))",
        "device.attributes['gpu.nvidia.com'].index in [1, 3]",
        "device.attributes['gpu.nvidia.com'].index >= 3 && device.attributes['gpu.nvidia.com'].index < 4",
        "device.attributes['gpu.nvidia.com'].healthy",
        "'type' in device.attributes['gpu.nvidia.com']",
        "!('none' in device.attributes['gpu.nvidia.com'])",
        "!has(device.attributes['other.com'].x)",
        "!has(device.attributes['gpu.nvidia.com'].none)",
        "device.attributes['gpu.nvidia.com'].none == 'x' || device.driver == 'gpu.nvidia.com'",
        "(true || false) && !(false)",
        "-1 < 2",
        r"'a\'b' == \"a'b\"".replace('\\"', '"'),
        r"r'\d' == '\\d'",
    ],
)
def test_expressions_about_a_device(expression: str) -> None:
    assert cel.compiled(expression)(GPU) is True


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.nvidia.com'].none == 'x'",
        "device.attributes['other.com'].type == 'gpu'",
        "device.capacity['gpu.nvidia.com'].cores.compareTo(quantity('1')) > 0",
        "device.attributes['gpu.nvidia.com'].type > 3",
        "device.attributes['gpu.nvidia.com'].type",
        "device.attributes['gpu.nvidia.com'].index.matches('3')",
        "quantity('many').isGreaterThan(quantity('1'))",
        "semver('new').isLessThan(semver('1.0.0'))",
        "device.driver.matches('(')",
        "!device.driver",
        "1 in 2",
        "device.driver == 'x' || device.attributes['gpu.nvidia.com'].none == 'x'",
    ],
)
def test_expressions_without_a_value_for_a_device(expression: str) -> None:
    with pytest.raises(cel.CelFailure):
        cel.compiled(expression)(GPU)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "is empty"),
        ("device.driver ==", "ends too early"),
        ("device.driver = 'x'", "cannot be read at character 14"),
        ("cel.bind(x, device.driver, x == 'y')", "not served at character 1"),
        ("device.attributes.all(k, true)", "not served at character 19"),
        ("1 + 1 == 2", "cannot be read"),
        ("device.driver == 'x' ? true : false", "cannot be read"),
        ("(true", "')' is missing"),
        ("has(device.driver, 1)", "1 arguments are meant"),
        ("true false", "not served at character 6"),
        ("1.5 > 1", "cannot be read"),
        (r"'\x41' == 'A'", "escape"),
        ("(" * 200 + "true" + ")" * 200, "nested too deeply"),
        ("x" * 20_000, "longer than"),
    ],
)
def test_unsupported_expression_is_reported_with_its_position(expression: str, words: str) -> None:
    with pytest.raises(cel.CelError) as caught:
        cel.compiled(expression)
    assert words in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.sampled_from("device.attributes['x'] &|!=<>()\"12 in true has quantity,[]-\\r"), max_size=60)
)
def test_any_text_is_evaluated_or_rejected(text: str) -> None:
    try:
        selects = cel.compiled(text)
    except cel.CelError:
        return
    with contextlib.suppress(cel.CelFailure):
        assert selects(GPU) in (True, False)
