"""Endpoints for routers and cells. Signed by them; never reached by customers."""
