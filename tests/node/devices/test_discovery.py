"""Device discovery over a scripted NVML, without hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted_nvml import A100_40, H100_80, T4, Script, binding, card

from windlass.api.devices import node_annotation
from windlass.node.devices import discovery, labels
from windlass.node.devices.discovery import DeviceOptionError, DiscoveryOptions, discover, key_of
from windlass.node.devices.labels import family
from windlass.node.devices.nvml import Nvml

DRIVER = {
    "cuda.driver-version.full": "550.54.15",
    "cuda.driver-version.major": "550",
    "cuda.driver-version.minor": "54",
    "cuda.driver-version.revision": "15",
    "cuda.driver.major": "550",
    "cuda.driver.minor": "54",
    "cuda.driver.rev": "15",
    "cuda.runtime-version.major": "12",
    "cuda.runtime-version.minor": "4",
    "cuda.runtime-version.full": "12.4",
    "cuda.runtime.major": "12",
    "cuda.runtime.minor": "4",
}


def nvml(tmp_path: Path, cards: list[dict[str, Any]], **more: Any) -> Nvml:
    opened = Nvml(binding(Script.write(tmp_path / "nvml.json", cards, **more)))
    opened.open()
    return opened


def found(
    tmp_path: Path, cards: list[dict[str, Any]], wishes: DiscoveryOptions | None = None, **more: Any
) -> discovery.Inventory:
    return discover("auto", wishes, nvml=nvml(tmp_path, cards, **more))


def test_labels_and_uuids_of_real_devices(tmp_path: Path) -> None:
    clique = "11111111-2222-3333-4444-555555555555.7"
    inventory = found(tmp_path, [card(H100_80, i, links=["switch"], clique=clique) for i in range(2)])
    assert [c.index for c in inventory.devices] == [0, 1]
    assert all(c.uuid.startswith("GPU-") for c in inventory.devices)
    labels = {key.removeprefix("nvidia.com/"): value for key, value in inventory.labels.items()}
    assert " " not in labels.pop("gpu.machine")
    assert labels.pop("gpu.mode") in ("compute", "display", "unknown")
    assert labels == {
        "gpu.present": "true",
        "gpu.product": "NVIDIA-H100-80GB-HBM3",
        "gpu.count": "2",
        "gpu.memory": "81559",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.compute.major": "9",
        "gpu.compute.minor": "0",
        "gpu.family": "hopper",
        "gpu.clique": clique,
        "mps.capable": "false",
        "mig.strategy": "none",
        "mig.capable": "true",
        "mig.enabled": "false",
        "gpu.driver.version": "550.54.15",
        **DRIVER,
    }
    assert inventory.resources == {"nvidia.com/gpu": 2}
    assert inventory.find(1).uuid == inventory.devices[1].uuid
    with pytest.raises(LookupError, match="no device 2"):
        inventory.find(2)


def test_each_card_is_told_apart(tmp_path: Path) -> None:
    inventory = found(
        tmp_path,
        [
            card(H100_80, 0, links=[1], numa=0),
            card(H100_80, 1, links=[0], numa=1),
            card(T4, 2, numa=-1),
            card(H100_80, 3, links=["switch"]),
            card(H100_80, 4, links=["switch"]),
        ],
    )
    assert [c.link_group for c in inventory.devices] == [0, 0, -1, 1, 1]
    assert [c.numa for c in inventory.devices] == [0, 1, -1, 0, 0]
    assert inventory.devices[2].compute == "7.5"
    assert inventory.devices[0].pci == "00000000:10:00.0"
    assert "several kinds (NVIDIA-H100-80GB-HBM3, Tesla-T4)" in inventory.note
    again = node_annotation.read({node_annotation.NODE_DEVICES: node_annotation.write(inventory.devices)})
    assert again.problem is None
    assert again.cards == inventory.devices


def test_a_machine_without_a_driver_has_none_and_that_is_no_error(tmp_path: Path) -> None:
    script = Script.write(tmp_path / "nvml.json", [], driver=False)
    assert discovery.open_nvml(lambda: Nvml(binding(script))) is None
    silent = discover("auto")
    assert not silent.devices
    assert not silent.labels
    assert "no NVIDIA driver responds" in silent.note


def test_a_lost_card_is_listed_and_the_others_are_well(tmp_path: Path) -> None:
    inventory = found(tmp_path, [card(T4, 0), card(T4, 1, lost=True)])
    assert [c.healthy for c in inventory.devices] == [True, False]
    assert "does not respond" in inventory.devices[1].reason


class TestMig:
    def cards(self, *profiles: tuple[str, int, int]) -> list[dict[str, Any]]:
        cut = card(A100_40, 0, migMode=True)
        ids = {"1g.5gb": (19, 1), "3g.20gb": (9, 4), "2g.10gb": (14, 2)}
        for number, (profile, start, compute) in enumerate(profiles):
            profile_id, size = ids[profile]
            cut["instances"].append(
                {
                    "id": number + 1,
                    "profileId": profile_id,
                    "profile": profile,
                    "start": start,
                    "size": size,
                    "compute": compute,
                    "uuid": f"MIG-{number}",
                }
            )
        return [cut, card(A100_40, 1)]

    def test_possible_placements_are_the_drivers(self, tmp_path: Path) -> None:
        inventory = found(tmp_path, self.cards(), DiscoveryOptions(may_create=True))
        cut = inventory.devices[0]
        assert cut.mig
        assert cut.dynamic
        places = {place.profile: (place.starts, place.size, place.compute) for place in cut.placements}
        assert places == {
            "1g.5gb": ((0, 1, 2, 3, 4, 5, 6), 1, 1),
            "1g.5gb+me": ((0, 1, 2, 3, 4, 5, 6), 1, 1),
            "1g.10gb": ((0, 2, 4, 6), 2, 1),
            "2g.10gb": ((0, 2, 4), 2, 2),
            "3g.20gb": ((0, 4), 4, 3),
            "4g.20gb": ((0,), 4, 4),
            "7g.40gb": ((0,), 8, 7),
        }
        assert inventory.labels["windlass.dev/mig"] == "dynamic"
        assert inventory.resources == {"nvidia.com/gpu": 1}  # a GPU in MIG mode is not available as a whole

    def test_mixed_counts_the_slices_that_are_there(self, tmp_path: Path) -> None:
        cards = self.cards(("3g.20gb", 0, 3), ("1g.5gb", 5, 1), ("1g.5gb", 6, 1))
        inventory = found(tmp_path, cards, DiscoveryOptions(may_create=True))
        assert not inventory.devices[0].dynamic  # the instances are not the agent's
        assert "creates no instances: 0" in inventory.note
        assert inventory.resources == {
            "nvidia.com/gpu": 1,
            "nvidia.com/mig-1g.5gb": 2,
            "nvidia.com/mig-3g.20gb": 1,
        }
        labels = inventory.labels
        assert labels["nvidia.com/mig.strategy"] == "mixed"
        assert labels["nvidia.com/mig-1g.5gb.count"] == "2"
        assert labels["nvidia.com/mig-1g.5gb.memory"] == "4864"
        assert labels["nvidia.com/mig-3g.20gb.multiprocessors"] == "42"
        assert labels["nvidia.com/mig-3g.20gb.slices.gi"] == "3"
        assert labels["nvidia.com/mig-3g.20gb.engines.copy"] == "3"

    def test_single_makes_cards_of_the_slices(self, tmp_path: Path) -> None:
        cards = self.cards(("1g.5gb", 5, 1), ("1g.5gb", 6, 1))[:1]
        inventory = found(tmp_path, cards, DiscoveryOptions(mig="single"))
        assert inventory.resources == {"nvidia.com/gpu": 2}
        assert [c.uuid for c in inventory.devices] == ["MIG-0", "MIG-1"]
        assert inventory.devices[0].memory_mib == 4864
        assert inventory.labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
        assert inventory.labels["nvidia.com/gpu.count"] == "2"
        assert inventory.labels["nvidia.com/gpu.memory"] == "4864"
        assert inventory.labels["nvidia.com/mig.strategy"] == "single"
        assert set(inventory.parents.values()) == {cards[0]["uuid"]}

    def test_single_with_different_slices_falls_back_and_says_so(self, tmp_path: Path) -> None:
        cards = self.cards(("3g.20gb", 0, 3), ("1g.5gb", 6, 1))
        inventory = found(tmp_path, cards, DiscoveryOptions(mig="single"))
        assert inventory.labels["nvidia.com/mig.strategy"] == "mixed"
        assert "mixed is used" in inventory.note

    def test_an_ordinary_user_sees_the_slices_but_not_their_places(self, tmp_path: Path) -> None:
        inventory = found(tmp_path, self.cards(("1g.5gb", 6, 1)), DiscoveryOptions(), root=False)
        cut = inventory.devices[0]
        assert not cut.dynamic
        assert [(i.profile, i.uuid) for i in cut.instances] == [("1g.5gb", "MIG-0")]
        assert cut.instances[0].start < 0
        assert cut.healthy
        assert cut.memory_mib == 40960  # of the model: only root may query it
        assert inventory.resources["nvidia.com/mig-1g.5gb"] == 1


class TestSimulated:
    def test_plain_ones_have_indices(self) -> None:
        inventory = discover("simulated:4", machine="box")
        assert inventory.simulated
        assert len(inventory.devices) == 4
        assert inventory.labels["nvidia.com/gpu.product"] == "Simulated-GPU"
        assert inventory.labels["nvidia.com/gpu.memory"] == "16384"
        assert "without hardware" in inventory.note
        other = discover("simulated:4", machine="other")
        assert not {c.uuid for c in inventory.devices} & {c.uuid for c in other.devices}

    def test_models_memory_and_mig(self) -> None:
        inventory = discover("simulated:2xA100-40GB+mig,1xT4,2xMI300X,1xMine:24GiB")
        assert [(key_of(c), c.model, c.memory_mib) for c in inventory.devices] == [
            ("0", "NVIDIA-A100-SXM4-40GB", 40960),
            ("1", "NVIDIA-A100-SXM4-40GB", 40960),
            ("2", "Tesla-T4", 15360),
            ("amd.com/gpu/0", "AMD-Instinct-MI300X", 196592),
            ("amd.com/gpu/1", "AMD-Instinct-MI300X", 196592),
            ("3", "Mine", 24576),
        ]
        assert [c.dynamic for c in inventory.devices] == [True, True, False, False, False, False]
        assert inventory.resources == {"nvidia.com/gpu": 2, "amd.com/gpu": 2}
        assert inventory.labels["amd.com/gpu.product"] == "AMD-Instinct-MI300X"
        assert inventory.find(1, "amd.com/gpu").resource == "amd.com/gpu"

    @pytest.mark.parametrize(
        ("option", "memory"), [("simulated:1:24GiB", 24576), ("simulated:1xH100:40Gi", 40960)]
    )
    def test_memory_can_be_set(self, option: str, memory: int) -> None:
        assert [c.memory_mib for c in discover(option).devices] == [memory]

    @pytest.mark.parametrize(
        "option",
        [
            "simulated",
            "simulated:0",
            "simulated:x",
            "simulated:2xNobody",
            "simulated:1xT4+mig",
            "simulated:1xA100+fast",
            "simulated:1xA100+mig+mps",
            "simulated:1:0Gi",
            "two",
            "",
        ],
    )
    def test_options_that_mean_nothing(self, option: str) -> None:
        with pytest.raises(DeviceOptionError):
            discover(option)


def test_the_way_of_handing_out_slices_is_part_of_the_option() -> None:
    assert discovery.split_option("auto") == ("auto", "")
    assert discovery.split_option("auto:single") == ("auto", "single")
    assert discovery.split_option("simulated:1:24GiB") == ("simulated:1:24GiB", "")
    with pytest.raises(DeviceOptionError, match="auto:dynamic"):
        discovery.split_option("auto:both")


def test_switched_off() -> None:
    assert not discover("none").devices


def test_short_labels_are_those_that_are_clear() -> None:
    h100 = discover("simulated:1xH100").devices
    assert labels.aliases(h100) == {"gpu-type": "H100", "gpu-tier": "high-performance"}
    assert labels.aliases(discover("simulated:1xT4").devices) == {"gpu-type": "T4", "gpu-tier": "inference"}
    assert labels.aliases(discover("simulated:1").devices) == {}


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 0), "blackwell"),
    ],
)
def test_families(capability: tuple[int, int], name: str) -> None:
    assert family(*capability) == name
