"""The management API, behind the router."""
