"""Devices of this machine: discovery, NVML, allocation, health, MIG."""
