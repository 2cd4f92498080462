"""Driver of a batch: keeps its ledger and serves leases to workers over HTTP."""
