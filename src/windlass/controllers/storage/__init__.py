"""Binding of PersistentVolumeClaims to PersistentVolumes, and their protection while in use."""
