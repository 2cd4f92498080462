"""Reconcilers of ``flow.volcano.sh``: JobFlows and JobTemplates."""
