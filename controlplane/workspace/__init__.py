"""The console's workspace: the few tables every tenant has in a schema of its own."""
