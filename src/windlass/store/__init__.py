"""The versioned object store on SQLite."""
