"""Models of accelerators are found by the labels that nodes carry."""

from __future__ import annotations

import pytest

from windlass.api.devices.models import MODELS
from windlass.spi.accelerators import TIERS, known, table, tier_of


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA-H100-80GB", "H100"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100"),
        ("Tesla-V100-SXM2-32GB", "V100"),
        ("V100M16", "V100"),
        ("Tesla-T4", "T4"),
        ("NVIDIA-L40S", "L40S"),
        ("NVIDIA-L4", "L4"),
        ("NVIDIA-A10G", "A10"),
        ("NVIDIA-A10", "A10"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("AMD-Instinct-MI300X-OAM", "MI300X"),
        ("Ascend910B", "ASCEND910B"),
        ("HL-225", "GAUDI2"),
        ("gaudi2", "GAUDI2"),
        ("NVIDIA-GH200-480GB", "GH200"),
    ],
)
def test_products_are_known(product, model):
    found = known(product)
    assert found is not None
    assert found.model == model


@pytest.mark.parametrize("product", ["", "G2", "NVIDIA-H1000", "AL4", "unknown-card"])
def test_what_is_not_in_the_table_is_not_guessed(product):
    assert known(product) is None
    assert tier_of(product) == ""


def test_tiers_are_those_that_users_know():
    assert {name: tier_of(name) for name in ("H100", "A100", "A40", "V100", "T4", "L4")} == {
        "H100": "high-performance",
        "A100": "high-performance",
        "A40": "standard",
        "V100": "standard",
        "T4": "inference",
        "L4": "inference",
    }


def test_every_entry_is_whole():
    names = [name for entry in table() for name in entry.names]
    assert len(names) == len(set(names))
    for entry in table():
        assert entry.tier in TIERS
        assert entry.value > 0
        assert entry.memory_mib >= 8 * 1024
        assert known(entry.model) == entry or entry.model not in entry.names


def test_models_for_simulated_cards_agree_with_the_table():
    for name, model in MODELS.items():
        entry = known(model.product)
        assert entry is not None, name
        assert model.tier in ("", entry.tier)
        if model.compute:
            assert model.compute == f"{entry.compute[0]}.{entry.compute[1]}"
