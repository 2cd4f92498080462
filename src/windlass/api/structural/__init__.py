"""Structural schemas of CustomResourceDefinitions: pruning, defaults, validation of objects.

A schema is the JSON schema of a CustomResourceDefinition as it is written there. The rules and
the messages are those of kube-apiserver 1.36 (``apiextensions-apiserver``, ``kube-openapi``).
All functions are pure.
"""
