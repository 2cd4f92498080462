"""Devices of nodes and pods: inventory, requests, DRA claims, HAMi annotations."""
