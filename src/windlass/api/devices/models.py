"""Properties of well-known device models by common name, for simulated devices and for labels.

Real devices are queried (NVML); nothing here overrides the driver. Memory is in MiB as drivers report it. Their MIG
profiles are in :mod:`windlass.api.devices.mig_profiles`.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.api.devices.accelerator_table import tier_of as tier_of
from windlass.api.devices.mig_profiles import SliceProfile, profiles_of
from windlass.api.devices.node_annotation import ProfilePlacement

NVIDIA, AMD, GAUDI, ASCEND = "nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "huawei.com/Ascend910"
NEURON = "aws.amazon.com/neuron"
HIGH, STANDARD, INFERENCE = "high-performance", "standard", "inference"


@dataclass(frozen=True, slots=True)
class AcceleratorModel:
    """``product`` is the label's value, with dashes for spaces. ``compute``: CUDA capability, ``""`` elsewhere.

    ``tier`` is the class of work that the model is meant for, where it is clear; ``links``: devices of one
    machine reach one another by NVLink (or its like).
    """

    product: str
    memory_mib: int
    compute: str = ""
    resource: str = NVIDIA
    tier: str = ""
    links: bool = False

    @property
    def placements(self) -> tuple[ProfilePlacement, ...]:
        """Placements of MIG profiles on the device; empty without MIG."""
        return tuple(_placement(profile) for profile in profiles_of(self.product, self.memory_mib))


def _placement(profile: SliceProfile) -> ProfilePlacement:
    return ProfilePlacement(
        profile.name,
        profile.starts,
        profile.size,
        profile.compute,
        profile.memory_mib,
        profile.sms,
        most=1 if profile.media else len(profile.starts),
    )


MODELS: dict[str, AcceleratorModel] = {
    "H100-80GB": AcceleratorModel("NVIDIA-H100-80GB-HBM3", 81559, "9.0", tier=HIGH, links=True),
    "H100-PCIE": AcceleratorModel("NVIDIA-H100-PCIe", 81559, "9.0", tier=HIGH),
    "H200": AcceleratorModel("NVIDIA-H200", 143771, "9.0", tier=HIGH, links=True),
    "B200": AcceleratorModel("NVIDIA-B200", 183359, "10.0", tier=HIGH, links=True),
    "A100-40GB": AcceleratorModel("NVIDIA-A100-SXM4-40GB", 40960, "8.0", tier=HIGH, links=True),
    "A100-80GB": AcceleratorModel("NVIDIA-A100-SXM4-80GB", 81920, "8.0", tier=HIGH, links=True),
    "A30": AcceleratorModel("NVIDIA-A30", 24576, "8.0"),
    "A40": AcceleratorModel("NVIDIA-A40", 46068, "8.6", tier=STANDARD),
    "A10": AcceleratorModel("NVIDIA-A10", 23028, "8.6"),
    "V100-16GB": AcceleratorModel("Tesla-V100-SXM2-16GB", 16384, "7.0", tier=STANDARD, links=True),
    "V100-32GB": AcceleratorModel("Tesla-V100-SXM2-32GB", 32768, "7.0", tier=STANDARD, links=True),
    "T4": AcceleratorModel("Tesla-T4", 15360, "7.5", tier=INFERENCE),
    "L4": AcceleratorModel("NVIDIA-L4", 23034, "8.9", tier=INFERENCE),
    "L40S": AcceleratorModel("NVIDIA-L40S", 46068, "8.9"),
    "RTX4090": AcceleratorModel("NVIDIA-GeForce-RTX-4090", 24564, "8.9"),
    "MI300X": AcceleratorModel("AMD-Instinct-MI300X", 196592, resource=AMD, tier=HIGH, links=True),
    "GAUDI2": AcceleratorModel("Gaudi2", 98304, resource=GAUDI, links=True),
    "GAUDI3": AcceleratorModel("Gaudi3", 131072, resource=GAUDI, links=True),
    "TRAINIUM": AcceleratorModel("AWS-Trainium", 32768, resource=NEURON, tier=HIGH, links=True),
    "TRAINIUM2": AcceleratorModel("AWS-Trainium2", 98304, resource=NEURON, tier=HIGH, links=True),
    "INFERENTIA": AcceleratorModel("AWS-Inferentia", 8192, resource=NEURON, tier=INFERENCE),
    "INFERENTIA2": AcceleratorModel("AWS-Inferentia2", 32768, resource=NEURON, tier=INFERENCE, links=True),
    "ASCEND910B": AcceleratorModel("Ascend910B", 65536, resource=ASCEND, links=True),
}
"""By short name, in upper case. ``H100``, ``A100`` and ``V100`` stand for the 80, 80 and 32 GB ones."""
_SHORT = {
    "H100": "H100-80GB",
    "A100": "A100-80GB",
    "V100": "V100-32GB",
    "ASCEND910": "ASCEND910B",
    "TRAINIUM1": "TRAINIUM",
}


def find_model(name: str) -> AcceleratorModel | None:
    """By short name (``H100-80GB``, ``t4``) or product (``NVIDIA-H100-80GB-HBM3``); None for others."""
    wanted = name.strip().upper().replace(" ", "-")
    short = _SHORT.get(wanted, wanted)
    if short in MODELS:
        return MODELS[short]
    exact = next((model for model in MODELS.values() if model.product.upper() == wanted), None)
    if exact is not None:
        return exact
    return next(
        (model for key, model in MODELS.items() if wanted.startswith((key, f"NVIDIA-{key}", f"TESLA-{key}"))),
        None,
    )


_TYPES = ("H100", "H200", "B200", "GB200", "A100", "A30", "A40", "A10", "V100", "L40S", "L40", "T4", "L4")


def short_type(product: str) -> str:
    """``NVIDIA-A100-SXM4-80GB`` → ``A100``; ``""`` where no word of the product is a model's short name."""
    words = product.upper().replace("-", " ").split()
    return next((word for word in words if word in _TYPES or word == "MI300X"), "")
