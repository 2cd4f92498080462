"""LeaderWorkerSets: a StatefulSet of leaders, and one of workers for each leader."""
