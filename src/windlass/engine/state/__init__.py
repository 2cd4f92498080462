"""State of the cluster: placement ledger, statement with undo log, counters."""
