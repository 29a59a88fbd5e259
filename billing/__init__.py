"""Meters and money. Knows tenants by id only."""
