"""Stages of a batch: their ledgers, joined by a bounded spool, and the budget that they share."""
