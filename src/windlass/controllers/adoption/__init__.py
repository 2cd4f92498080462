"""Adoption of gangs from Volcano and KAI queue by queue, and their release."""
