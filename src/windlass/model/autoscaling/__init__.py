"""ProvisioningRequests: nodes that gangs request from a cluster autoscaler."""
