"""F69: requested GPU models and the model names of devices."""

from __future__ import annotations

import pytest

from windlass.spi.model_names import model_matches, names_any


@pytest.mark.parametrize(
    ("wanted", "model"),
    [
        ("A100-80G", "NVIDIA-A100-SXM4-80GB"),
        ("A100-80G", "NVIDIA-A100-80GB-PCIe"),
        ("a100_80gib", "NVIDIA-A100-SXM4-80GB"),
        ("A100 80GB", "NVIDIA-A100-SXM4-80GB"),
        ("80GB-A100", "NVIDIA-A100-SXM4-80GB"),
        ("H100-80GB", "NVIDIA-H100-80GB-HBM3"),
        ("V100-32G", "Tesla-V100-SXM2-32GB"),
        ("a100", "NVIDIA-A100-SXM4-80GB"),
        ("RTX-4090", "NVIDIA-GeForce-RTX-4090"),
        ("", "Tesla-T4"),
    ],
)
def test_f69_model_is_named_by_parts_and_words(wanted: str, model: str) -> None:
    assert model_matches(wanted, model)


@pytest.mark.parametrize(
    ("wanted", "model"),
    [
        ("A100-40G", "NVIDIA-A100-SXM4-80GB"),
        ("A100-80G", "NVIDIA-A100-SXM4-40GB"),
        ("H100-80G", "NVIDIA-A100-SXM4-80GB"),
        ("A10-80G", "NVIDIA-A100-SXM4-80GB"),
        ("-", "Tesla T4"),
    ],
)
def test_other_models_do_not_match(wanted: str, model: str) -> None:
    assert not model_matches(wanted, model)


def test_any_of_several() -> None:
    assert names_any(("H100", "A100-80G"), "NVIDIA-A100-SXM4-80GB")
    assert not names_any((), "NVIDIA-A100-SXM4-80GB")
