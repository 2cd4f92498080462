"""The versioned object store on SQLite: resourceVersion, watch log, transactions, compaction, migrations."""
