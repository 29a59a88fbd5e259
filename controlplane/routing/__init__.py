"""The router: a small ASGI application in front of the cells and of Django."""
