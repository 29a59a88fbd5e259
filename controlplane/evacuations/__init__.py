"""Cells handed over to other regions, planned, and brought back."""
