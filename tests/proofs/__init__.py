"""Claims a user can check alone: `make prove` lists them, `make prove NAME=...` runs one."""
