"""A tenant's schema is active below /t/<slug>/ for its members, and nowhere else."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.test import RequestFactory

from controlplane.tenants.models import Tenant, User
from controlplane.workspace.middleware import WorkspaceMiddleware
from controlplane.workspace.models import Note
from tests.component.controlplane.factories import MembershipFactory, TenantFactory

pytestmark = pytest.mark.django_db


def _visit(path: str, user: User | AnonymousUser, view: object = None) -> tuple[HttpResponse, list[str]]:
    seen: list[str] = []

    def handle(request: HttpRequest) -> HttpResponse:
        seen.append(connection.schema_name)
        return view(request) if callable(view) else HttpResponse("here")  # type: ignore[no-any-return]

    request = RequestFactory().get(path)
    request.user = user
    response = WorkspaceMiddleware(handle)(request)  # type: ignore[arg-type]
    assert connection.schema_name == "public"
    return response, seen  # type: ignore[return-value]


def test_a_member_is_in_their_tenants_schema(control: None) -> None:
    member = MembershipFactory()
    response, seen = _visit(f"/t/{member.tenant.slug}/jobs", member.user)
    assert (response.status_code, seen) == (200, [member.tenant.schema_name])


def test_notes_of_two_tenants_do_not_meet(control: None) -> None:
    one, two = MembershipFactory(), MembershipFactory()

    def write(request: HttpRequest) -> HttpResponse:
        Note.objects.create(subject="job_1", text=request.path, author="a")
        return HttpResponse(str(Note.objects.count()))

    assert _visit(f"/t/{one.tenant.slug}/", one.user, write)[0].content == b"1"
    assert _visit(f"/t/{two.tenant.slug}/", two.user, write)[0].content == b"1"
    assert _visit(f"/t/{two.tenant.slug}/", two.user, write)[0].content == b"2"


def test_others_find_nothing(control: None) -> None:
    member: object = MembershipFactory()
    stranger: Tenant = TenantFactory()
    for slug in (stranger.slug, "no-such-tenant", ""):
        response, seen = _visit(f"/t/{slug}/", member.user)  # type: ignore[attr-defined]
        assert (response.status_code, seen) == (404, [])


def test_nobody_is_sent_to_sign_in(control: None) -> None:
    response, seen = _visit("/t/acme/jobs?state=DONE", AnonymousUser())
    assert (response.status_code, seen) == (302, [])
    assert response["Location"] == "/accounts/login/?next=/t/acme/jobs%3Fstate%3DDONE"


def test_everything_else_is_public(control: None) -> None:
    member = MembershipFactory()
    for path in ("/", "/v1/tenant", "/admin/", "/internal/meters", f"/x/t/{member.tenant.slug}/"):
        assert _visit(path, member.user)[1] == ["public"]


def test_the_schema_is_left_whatever_happens(control: None) -> None:
    member = MembershipFactory()

    def broken(request: HttpRequest) -> HttpResponse:
        raise Http404

    with pytest.raises(Http404):
        _visit(f"/t/{member.tenant.slug}/", member.user, broken)
    assert connection.schema_name == "public"
