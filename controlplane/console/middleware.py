"""Headers every page carries: no script or style but our own files, no framing, no sniffing."""

from __future__ import annotations

from collections.abc import Callable
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest, HttpResponseBase

ZONE_COOKIE = "zone"
#: Pages of others that bring scripts of their own.
_NOT_OURS = ("/admin/", "/openapi/", "/v1/", "/internal/")
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


class PageHeaders:
    """Sets the content security policy and its companions on the console's pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if not request.path_info.startswith(_NOT_OURS):
            response.headers.setdefault("Content-Security-Policy", _POLICY)
            response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
            if response.headers.get("Content-Type", "").startswith("text/html"):
                response.headers.setdefault("Cache-Control", "no-store")
        return response


def viewer_zone(request: HttpRequest, fallback: str = "UTC") -> ZoneInfo:
    """The viewer's time zone: what they chose, else what their browser said, else the workspace's."""
    for name in (getattr(request.user, "timezone", ""), request.COOKIES.get(ZONE_COOKIE, ""), fallback):
        try:
            if name and len(name) <= 64:
                return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            continue
    return ZoneInfo("UTC")
