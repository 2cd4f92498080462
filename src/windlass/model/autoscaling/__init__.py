"""ProvisioningRequests: what gangs ask of a cluster autoscaler."""
