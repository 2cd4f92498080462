"""HTTP extenders: nodes and groups judged by another server."""
