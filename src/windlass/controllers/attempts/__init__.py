"""Attempt ledgers of jobs of all kinds."""
