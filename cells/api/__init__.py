"""The cell's HTTP API."""
