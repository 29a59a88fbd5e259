"""Tenants move from one cell to another, while they work."""
