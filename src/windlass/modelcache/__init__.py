"""Models on a node: fetched once, verified, kept until room is needed, shared in memory.

It runs in pods of the node (``python -m windlass.modelcache``) and in the workers that
use a model. It knows neither the API server nor the scheduler.
"""
