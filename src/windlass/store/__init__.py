"""Versioned object store on SQLite, with a watch log, transactions and migrations."""
