"""Gangs of pods that another operator creates: by the kind of their top owner. Pure.

The table of kinds follows KAI Scheduler's pod grouper. A kind that is not in it may be
declared by annotations of its CustomResourceDefinition.
"""
