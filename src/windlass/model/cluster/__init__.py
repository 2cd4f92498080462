"""Model of the cluster: object cache, group index, delta builder, facade."""
