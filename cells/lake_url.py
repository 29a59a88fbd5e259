"""How one says where the history lake is."""

from __future__ import annotations

from urllib.parse import urlsplit


def check_url(text: str) -> str:
    """The URL of a lake, or `ValueError`: `file:///folder` or `s3://bucket/prefix`."""
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc and len(parts.path) > 1:
        return text
    if parts.scheme == "s3" and parts.netloc:
        return text
    raise ValueError("file:///folder or s3://bucket/prefix")
