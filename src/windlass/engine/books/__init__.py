"""The state, and the only ways in which it changes: ledger and statement."""
