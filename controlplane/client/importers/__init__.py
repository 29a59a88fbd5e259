"""Moving in from other schedulers: pure translations into jobs, and a report of what differs."""
