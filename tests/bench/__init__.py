"""Benches: figures with their bars. `make bench` runs the default set; none of them is a test."""
