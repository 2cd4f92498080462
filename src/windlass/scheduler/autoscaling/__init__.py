"""ProvisioningRequests of the running scheduler."""
