"""Worker of a batch: loads a runtime once and processes leased items."""
