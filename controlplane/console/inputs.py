"""Pages are asked with text. What holds a NUL is none: no database column takes it."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import BadRequest
from django.http import HttpRequest, HttpResponseBase, QueryDict, UnreadablePostError

#: These read their own bodies and say themselves what is wrong.
_NOT_PAGES = ("/v1/", "/internal/", "/openapi/")


class TextOnly:
    """Answers 400 to a NUL in a path, a query or a form of the console and the operators' pages."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(_NOT_PAGES) and _holds_nul(request):
            raise BadRequest("a NUL")
        return self.get_response(request)


def _holds_nul(request: HttpRequest) -> bool:
    if "\0" in request.path_info or _in_fields(request.GET):
        return True
    try:
        return request.method == "POST" and _in_fields(request.POST)
    except UnreadablePostError:
        raise BadRequest("the form broke off") from None


def _in_fields(fields: QueryDict) -> bool:
    return any("\0" in text for name, values in fields.lists() for text in (name, *values))
