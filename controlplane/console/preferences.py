"""A person's own account: what they prefer, beside allauth's pages for password, email and sign-in."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from controlplane.actors import Actor
from controlplane.console.acting import Form
from controlplane.console.workspace_settings import zones
from controlplane.errors import Refused
from controlplane.tenants.actions.accounts import THEMES, set_preferences

_FIELDS = ("name", "timezone", "theme")


def person(request: HttpRequest) -> Actor:
    """The signed-in person, acting for themselves."""
    return Actor(
        name=f"user:{request.user.pk}", source=f"console {request.META.get('REMOTE_ADDR', '')}".strip()
    )


@require_http_methods(["GET", "POST"])
@login_required
def preferences(request: HttpRequest) -> HttpResponse:
    """GET /account/; POST saves."""
    form = Form(values={name: getattr(request.user, name) for name in _FIELDS})
    if request.method == "POST":
        values = {name: request.POST.get(name, "").strip() for name in _FIELDS}
        try:
            set_preferences(user=request.user, **values, actor=person(request), reason="")
        except Refused as refused:
            form = Form.refused(values, refused, fields=_FIELDS)
        else:
            messages.success(request, "Your preferences are saved.")
            return redirect("console:preferences")
    return render(
        request,
        "console/account/preferences.html",
        {"form": form, "zones": zones(), "themes": THEMES, "tab": "preferences"},
        status=422 if form.faults or form.general else 200,
    )
