"""Operators' pages, and operators visiting a tenant's console."""
