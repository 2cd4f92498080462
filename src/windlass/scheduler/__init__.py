"""Service around the engine: feeds it, commits its decisions, reports them."""
