"""Regions, cells, and which tenant lives where."""
