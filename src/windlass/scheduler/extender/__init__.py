"""HTTP extenders: another server filters nodes and takes part in decisions."""
