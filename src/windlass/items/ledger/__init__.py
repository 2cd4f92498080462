"""Ledger of a batch: pure rules of leases, groups and retries, and their storage."""
