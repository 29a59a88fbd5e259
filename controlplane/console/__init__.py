"""The tenants' console: server-rendered pages that talk to cells as the signed-in member."""
