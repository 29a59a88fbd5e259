"""The store's named statements (`sql/*.sql`)."""

from __future__ import annotations

from pathlib import Path

from cells.named_sql import load, parse

__all__ = ["QUERIES", "load", "parse"]

QUERIES = load(Path(__file__).parent / "sql")
