"""Commands for the control plane of this machine."""
