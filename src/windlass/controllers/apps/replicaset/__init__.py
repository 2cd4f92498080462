"""ReplicaSet: a number of equal pods."""
