"""The engine of durable workflows: see README.md."""
