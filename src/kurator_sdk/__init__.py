"""Module that autoscaling classes of Kurator import: ``from kurator_sdk import AutoScaler``."""

from windlass.scaling.plugin import AutoScaler

__all__ = ["AutoScaler"]
