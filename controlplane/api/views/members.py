"""/v1/members"""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView, with_etag
from controlplane.api.documents import MemberDocument, page_of, show_member
from controlplane.api.forms import EditMember, NewMember
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.errors import NotFound
from controlplane.identity import MEMBER, decode
from controlplane.tenants.actions.members import add_member, change_role, remove_member
from controlplane.tenants.models import Membership


def _member_id(text: str) -> uuid.UUID:
    member_id = decode(MEMBER, text)
    if member_id is None:
        raise NotFound("no such member")
    return member_id


class MembersView(ApiView):
    scopes = needs(GET=Scope.ADMIN, POST=Scope.ADMIN)
    parameters = frozenset({"limit", "cursor"})
    idempotent_post = True

    @extend_schema(operation_id="list_members", responses=page_of(MemberDocument))
    def get(self, request: Request) -> Response:
        """The people of the tenant."""
        members = Membership.objects.select_related("user").filter(tenant=self.tenant_id)
        return keyset_page(request, members, ["id"], show_member)

    @extend_schema(operation_id="add_member", request=NewMember, responses={201: MemberDocument})
    def post(self, request: Request) -> Response:
        """Adds a person by email. Somebody new sets a password by "forgotten password"."""
        form = self.read(NewMember)

        def create() -> Response:
            member = add_member(tenant_id=self.tenant_id, **form, actor=self.actor)
            location = f"/v1/members/{member.public_id}"
            return with_etag(show_member(member), member.version, status=201, location=location)

        return once(request, create)


class MemberView(ApiView):
    scopes = needs(GET=Scope.ADMIN, PATCH=Scope.ADMIN, DELETE=Scope.ADMIN)

    @extend_schema(operation_id="get_member", responses=MemberDocument)
    def get(self, request: Request, member_id: str) -> Response:
        """One person."""
        member = (
            Membership.objects.select_related("user")
            .filter(tenant=self.tenant_id, pk=_member_id(member_id))
            .first()
        )
        if member is None:
            raise NotFound("no such member")
        return with_etag(show_member(member), member.version)

    @extend_schema(operation_id="edit_member", request=EditMember, responses=MemberDocument)
    def patch(self, request: Request, member_id: str) -> Response:
        """Another role, or payload sight. Owners are made and unmade by owners in the console."""
        member = change_role(
            tenant_id=self.tenant_id,
            member_id=_member_id(member_id),
            **self.read(EditMember),
            expected_version=self.expected_version(),
            actor=self.actor,
        )
        return with_etag(show_member(member), member.version)

    @extend_schema(operation_id="remove_member", responses={204: None})
    def delete(self, request: Request, member_id: str) -> Response:
        """Takes the person out of the tenant."""
        remove_member(tenant_id=self.tenant_id, member_id=_member_id(member_id), actor=self.actor, reason="")
        return Response(status=204)
