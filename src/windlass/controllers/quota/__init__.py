"""What a ResourceQuota says is used."""
