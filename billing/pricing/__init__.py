"""Stored prices: books, contracts with tenants, who is billed how."""
