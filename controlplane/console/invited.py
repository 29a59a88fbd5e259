"""Opening an invitation: join with the account there is, or make one."""

from __future__ import annotations

from urllib.parse import urlencode

from django import forms
from django.contrib.auth import login
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from controlplane.console.acting import Form
from controlplane.console.preferences import person
from controlplane.errors import NotFound, Refused
from controlplane.tenants.actions.accounts import create_invited_account, has_way_in
from controlplane.tenants.actions.invitations import LinkGone, accept_invitation, open_link
from controlplane.tenants.models import Invitation, User

_BACKEND = "allauth.account.auth_backends.AuthenticationBackend"


class NewAccount(forms.Form):
    """Somebody without an account chooses a name and a password."""

    name = forms.CharField(max_length=120, required=False)
    password = forms.CharField(max_length=200, strip=False)

    def __init__(self, invitation: Invitation, *args: object) -> None:
        super().__init__(*args)
        self._invitation = invitation

    def clean_password(self) -> str:
        password: str = self.cleaned_data["password"]
        validate_password(password, User(email=self._invitation.email, name=self.data.get("name", "")))
        return password


@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """GET /invitations/<token> says who invites whom to what; POST joins."""
    try:
        invited = open_link(token)
    except NotFound:
        return render(
            request, "console/invited/gone.html", {"why": "This is no invitation of ours."}, status=404
        )
    except LinkGone as gone:
        return render(request, "console/invited/gone.html", {"why": str(gone)}, status=410)
    account = User.objects.filter(email=invited.email).first()
    context = {"invitation": invited, "form": Form()}
    if request.user.is_authenticated:
        if request.user.email != invited.email:
            return render(request, "console/invited/other.html", context, status=403)
        if request.method == "GET":
            return render(request, "console/invited/join.html", context)
        return _join(request, token, request.user, context)
    if account is not None and (has_way_in(account) or not account.is_active):
        here = reverse("console:invitation", args=(token,))
        return redirect(f"{reverse('account_login')}?{urlencode({'next': here})}")
    if request.method == "GET":
        return render(request, "console/invited/new.html", context)
    return _new(request, token, context)


def _new(request: HttpRequest, token: str, context: dict[str, object]) -> HttpResponse:
    invited = context["invitation"]
    assert isinstance(invited, Invitation)  # noqa: S101 - what open_link gave
    asked = NewAccount(invited, request.POST)
    if not asked.is_valid():
        faults = {name: [str(text) for text in texts] for name, texts in asked.errors.items()}
        context["form"] = Form(values={"name": request.POST.get("name", "")}, faults=faults)
        return render(request, "console/invited/new.html", context, status=422)
    try:
        user = create_invited_account(
            token=token,
            name=asked.cleaned_data["name"],
            password=asked.cleaned_data["password"],
            actor=person(request),
            reason="",
        )
    except (Refused, ValidationError):
        return redirect("console:invitation", token)  # it changed meanwhile: look again
    login(request, user, backend=_BACKEND)
    return _join(request, token, user, context)


def _join(request: HttpRequest, token: str, user: User, context: dict[str, object]) -> HttpResponse:
    try:
        member = accept_invitation(token=token, user=user, actor=person(request), reason="")
    except LinkGone as gone:
        return render(request, "console/invited/gone.html", {"why": str(gone)}, status=410)
    except Refused as refused:
        context["form"] = Form.refused({}, refused, fields=())
        return render(request, "console/invited/join.html", context, status=409)
    return redirect("console:overview", member.tenant.slug)
