"""LeaderWorkerSet: replicas that are groups of one leader and its workers. Pure."""
