"""What operators' own pages share: staff only, drawn inside the admin's frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods

from controlplane.adminsite import operator
from controlplane.errors import Refused
from controlplane.refusals import of_billing

View = Callable[..., HttpResponse]


def operator_page(*methods: str) -> Callable[[View], View]:
    """A page for operators: others are sent to sign in, as by the admin itself."""

    def decorate(view: View) -> View:
        guarded: View = admin.site.admin_view(require_http_methods(list(methods) or ["GET"])(view))
        return wraps(view)(guarded)

    return decorate


def page(
    request: HttpRequest, template: str, title: str, status: int = 200, **context: Any
) -> TemplateResponse:
    """A rendered page."""
    frame: Mapping[str, Any] = admin.site.each_context(request)
    return TemplateResponse(
        request, f"operators/{template}", {**frame, "title": title, **context}, status=status
    )


def act(request: HttpRequest, use_case: Callable[..., Any], done: str, **inputs: Any) -> bool:
    """Calls a use-case as the operator; says what was done, or why it was refused."""
    try:
        with of_billing():
            use_case(**inputs, actor=operator(request))
    except Refused as refused:
        messages.error(request, f"Nothing was changed: {refused}")
        return False
    messages.success(request, done)
    return True
