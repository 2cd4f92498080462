"""Usage of ResourceQuotas."""
