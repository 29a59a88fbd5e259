"""Requests that concern a tenant's rows in other stores of the cell."""
