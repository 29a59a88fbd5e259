"""Members and invitations: who is in the workspace, as what, and who is asked to join."""

from __future__ import annotations

import uuid

from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import Form, ask, done, not_done
from controlplane.console.visit import Visit, tenant_page
from controlplane.errors import NotFound, Refused
from controlplane.identity import INVITATION, MEMBER, decode
from controlplane.tenants.actions.invitations import invite_member, resend_invitation, revoke_invitation
from controlplane.tenants.actions.members import change_role, remove_member
from controlplane.tenants.models import Invitation, Membership
from controlplane.tenants.roles import Role

ROLES = (
    (Role.OWNER, "everything an admin may, and makes and unmakes owners"),
    (Role.ADMIN, "everything in the workspace: people, keys, targets, settings"),
    (Role.DEVELOPER, "jobs, targets and workflows; no people and no keys"),
    (Role.VIEWER, "looks, changes nothing"),
)
_FIELDS = ("email", "role")


def _roles(visit: Visit) -> list[dict[str, str]]:
    """The roles this member may give, with what they allow."""
    owner = visit.actor.owner
    return [
        {"value": role.value, "label": str(role.label), "means": means}
        for role, means in ROLES
        if owner or role != Role.OWNER
    ]


@tenant_page(Scope.ADMIN, "GET", "POST")
def member_list(visit: Visit) -> HttpResponse:
    """GET …/settings/members/; POST invites."""
    if visit.request.method == "GET":
        return _list(visit, Form(values={"role": Role.DEVELOPER.value}))
    values = {name: visit.request.POST.get(name, "").strip() for name in _FIELDS}
    payloads = "may_see_payloads" in visit.request.POST
    try:
        invitation = invite_member(
            tenant_id=visit.tenant.id, **values, may_see_payloads=payloads, actor=visit.actor, reason=""
        )
    except Refused as refused:
        form = Form.refused({**values, "may_see_payloads": payloads}, refused, fields=_FIELDS)
        return _list(visit, form, status=422)
    done(
        visit, "{} is invited as {}. The link in the mail is good for seven days.",
        invitation.email, invitation.get_role_display().lower(),
    )  # fmt: skip
    return redirect(visit.url("members"))


def _list(visit: Visit, form: Form, status: int = 200) -> HttpResponse:
    members = Membership.objects.select_related("user").filter(tenant=visit.tenant).order_by("id")
    pending = (
        Invitation.objects.select_related("invited_by")
        .filter(tenant=visit.tenant, accepted_at=None, revoked_at=None)
        .order_by("-id")
    )
    return visit.page(
        "console/settings/members.html", status=status, section="settings", tab="members",
        members=members, pending=pending, form=form, roles=_roles(visit),
    )  # fmt: skip


def _member(visit: Visit, member_id: str) -> Membership:
    found = decode(MEMBER, member_id)
    member = (
        Membership.objects.select_related("user").filter(tenant=visit.tenant, pk=found).first()
        if found
        else None
    )
    if member is None:
        raise Http404
    return member


@tenant_page(Scope.ADMIN, "GET", "POST")
def member_edit(visit: Visit, member_id: str) -> HttpResponse:
    """GET …/settings/members/<id>/; POST changes role and payload sight."""
    member = _member(visit, member_id)
    form = Form(values={"role": member.role, "may_see_payloads": member.may_see_payloads})
    status = 200
    if visit.request.method == "POST":
        role = visit.request.POST.get("role", "")
        payloads = "may_see_payloads" in visit.request.POST
        try:
            changed = change_role(
                tenant_id=visit.tenant.id, member_id=member.id, role=role, may_see_payloads=payloads,
                actor=visit.actor, reason="",
            )  # fmt: skip
        except NotFound:
            raise Http404 from None
        except Refused as refused:
            form = Form.refused({"role": role, "may_see_payloads": payloads}, refused, fields=("role",))
            status = 422
        else:
            sight = "may see payloads" if changed.may_see_payloads else "has no extra sight of payloads"
            done(visit, "{} is {} now and {}.", changed.user.email, changed.get_role_display().lower(), sight)
            return redirect(visit.url("members"))
    return visit.page(
        "console/settings/member.html", status=status, section="settings", tab="members",
        member=member, form=form, roles=_roles(visit),
    )  # fmt: skip


@tenant_page(Scope.ADMIN, "GET", "POST")
def member_remove(visit: Visit, member_id: str) -> HttpResponse:
    """GET says what it touches; POST takes the person out."""
    member = _member(visit, member_id)
    if visit.request.method == "GET":
        return ask(
            visit,
            title=f"Remove {member.user.email}",
            points=[
                f"1 person loses access to {visit.name} with their next click.",
                "Their account stays, and so do jobs, targets and API keys they made.",
            ],
            verb="Remove",
            back=visit.url("members"),
            keep="Keep them",
            tab="members",
        )
    try:
        remove_member(tenant_id=visit.tenant.id, member_id=member.id, actor=visit.actor, reason="")
    except NotFound:
        raise Http404 from None
    except Refused as refused:
        not_done(visit, refused)
        return redirect(visit.url("members"))
    if member.user_id == visit.membership.user.pk:
        return redirect("console:choose")
    done(
        visit, "{} is no member any more.", member.user.email,
        link=(f"{visit.url('audit')}?subject={member.public_id}", "In the audit log"),
    )  # fmt: skip
    return redirect(visit.url("members"))


@tenant_page(Scope.JOBS_READ, "GET", "POST")
def leave(visit: Visit) -> HttpResponse:
    """GET says what it touches; POST takes the viewer themselves out."""
    member = visit.membership
    if not isinstance(member, Membership):
        raise Http404
    if visit.request.method == "GET":
        return ask(
            visit,
            title=f"Leave {visit.name}",
            points=[
                "You lose access with your next click; an admin can invite you again.",
                "Jobs, targets and API keys you made stay and keep working.",
            ],
            verb="Leave",
            back=visit.url("settings"),
            keep="Stay",
            tab="workspace",
        )
    try:
        remove_member(tenant_id=visit.tenant.id, member_id=member.id, actor=visit.actor, reason="left")
    except Refused as refused:
        not_done(visit, refused)
        return redirect(visit.url("settings"))
    return redirect("console:choose")


@tenant_page(Scope.ADMIN, "GET", "POST")
def invitation_action(visit: Visit, invitation_id: str, verb: str) -> HttpResponse:
    """POST …/resend, …/revoke; GET …/revoke asks."""
    found: uuid.UUID | None = decode(INVITATION, invitation_id)
    invitation = Invitation.objects.filter(tenant=visit.tenant, pk=found).first() if found else None
    if invitation is None or verb not in ("resend", "revoke"):
        raise Http404
    if visit.request.method == "GET":
        if verb != "revoke":
            return redirect(visit.url("members"))
        return ask(
            visit,
            title=f"Withdraw the invitation of {invitation.email}",
            points=["1 link ends: whoever opens it is told that it was withdrawn."],
            verb="Withdraw",
            back=visit.url("members"),
            keep="Keep it",
            tab="members",
        )
    act = resend_invitation if verb == "resend" else revoke_invitation
    try:
        act(tenant_id=visit.tenant.id, invitation_id=invitation.id, actor=visit.actor, reason="")
    except Refused as refused:
        not_done(visit, refused)
    else:
        said = (
            "{} gets another mail; links of earlier ones have ended."
            if verb == "resend"
            else "The invitation of {} is withdrawn."
        )
        done(visit, said, invitation.email)
    return redirect(visit.url("members"))
