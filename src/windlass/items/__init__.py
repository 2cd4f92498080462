"""Items of a batch: ledger, leases, groups, batches, retries and outputs of an AIGCJob.

The core is pure. The driver (``python -m windlass.items.driver``) keeps the ledger of one
job and serves leases over HTTP. Workers (``python -m windlass.items.worker``) load a runtime
once and process leased items.
"""
