"""/v1/tenant/erasure, /v1/admin/erasures: tenants that go for good, and the certificates of that."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView, ReasonMixin, Text
from controlplane.api.documents import Document, page_of
from controlplane.api.forms import Because
from controlplane.api.idempotency import once
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.custody import erasing
from controlplane.custody.models import ERASURE, Erasure
from controlplane.errors import Conflicting, NotFound, invalid
from controlplane.identity import TENANT, decode, encode
from controlplane.tenants.models import tenant_uuid

_CONFIRM = "the tenant's short name (slug), typed"


class EraseOwn(ReasonMixin):
    """The wish to be erased."""

    confirm = Text(max_length=48, help_text=_CONFIRM)


class Erase(ReasonMixin):
    """The wish to erase a tenant."""

    tenant_id = Text(max_length=60)
    confirm = Text(max_length=48, help_text=_CONFIRM)


class ErasurePlanDocument(Document):
    """What would go, in numbers; null where the cell cannot be asked just now. `kept_invoices` stay."""

    slug = serializers.CharField()
    members = serializers.IntegerField()
    api_keys = serializers.IntegerField()
    notification_rules = serializers.IntegerField()
    exports = serializers.IntegerField()
    cells = serializers.IntegerField(help_text="that are asked to remove what they have")
    pending_timers = serializers.IntegerField(allow_null=True)
    running_runs = serializers.IntegerField(allow_null=True)
    kept_invoices = serializers.IntegerField()
    grace_seconds = serializers.IntegerField(help_text="until it begins; so long it can be cancelled")


class ErasureDocument(Document):
    """An erasure. `steps_done` of `steps` are over; `why` is what the next one waits for."""

    erasure_id = serializers.CharField()
    tenant_id = serializers.CharField()
    state = serializers.CharField(help_text="REQUESTED, RUNNING, DONE, CANCELLED")
    steps = serializers.ListField(child=serializers.CharField())
    steps_done = serializers.IntegerField()
    why = serializers.CharField()
    requested_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    due_at = serializers.DateTimeField(allow_null=True, help_text="when it begins")
    began_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class RequestedErasureDocument(ErasureDocument):
    """An erasure that was asked for just now. `certificate_link` is shown this once."""

    certificate_link = serializers.CharField(help_text="fetches the certificate, once, when all is erased")


class OwnErasureDocument(Document):
    """What would be erased, and the erasure that is asked for, if any."""

    plan = ErasurePlanDocument()
    erasure = ErasureDocument(allow_null=True)


class CertificateDocument(Document):
    """What was erased where and when, what is kept and why; signed over its canonical text."""

    certificate = serializers.DictField()
    sha256 = serializers.CharField()
    signature = serializers.DictField()


def show(erasure: Erasure) -> dict[str, Any]:
    """An erasure as people see it."""
    return {
        "erasure_id": erasure.public_id,
        "tenant_id": encode(TENANT, erasure.tenant_id),
        "state": erasure.state,
        "steps": [name for name, _ in erasing.STEPS],
        "steps_done": erasure.step,
        "why": erasure.why,
        "requested_by": erasure.requested_by,
        "created_at": erasure.created_at,
        "due_at": erasure.due_at if erasure.state == "REQUESTED" else None,
        "began_at": erasure.began_at,
        "finished_at": erasure.finished_at,
    }


def _document(erasure: Erasure) -> dict[str, Any]:
    return dict(ErasureDocument(show(erasure)).data)


def _asked(made: erasing.Requested, base: str) -> Response:
    said = {**show(made.erasure), "certificate_link": made.link}
    where = base if base.endswith("erasure") else f"{base}/{made.erasure.public_id}"
    return Response(RequestedErasureDocument(said).data, 202, headers={"Location": where})


class OwnErasureView(ApiView):
    scopes = needs(GET=Scope.ADMIN, POST=Scope.ADMIN)
    idempotent_post = True

    @extend_schema(operation_id="get_own_erasure", responses=OwnErasureDocument)
    def get(self, request: Request) -> Response:
        """What would be erased, in numbers, and how far an erasure is that was asked for."""
        found = erasing.open_erasure(self.tenant_id)
        said = {"plan": erasing.plan(self.tenant_id), "erasure": None if found is None else show(found)}
        return Response(OwnErasureDocument(said).data)

    @extend_schema(
        operation_id="request_own_erasure", request=EraseOwn, responses={202: RequestedErasureDocument}
    )
    def post(self, request: Request) -> Response:
        """Has everything of the tenant erased for good, after a time of grace in which it can be cancelled.
        For keys that an owner or an operator made; every owner hears of it by mail.
        The link in the answer, shown this once, fetches the certificate when the tenant is gone."""
        form = self.read(EraseOwn)

        def create() -> Response:
            made = erasing.request_erasure(tenant_id=self.tenant_id, **form, actor=self.actor, key=True)
            return _asked(made, "/v1/tenant/erasure")

        return once(request, create)


class CancelOwnErasureView(ApiView):
    scopes = needs(POST=Scope.ADMIN)

    @extend_schema(operation_id="cancel_own_erasure", request=Because, responses=ErasureDocument)
    def post(self, request: Request) -> Response:
        """The tenant is not erased. Until the time of grace is over only, and only where a key asked for it:
        what an owner asked for owners cancel, in the console."""
        found = erasing.open_erasure(self.tenant_id)
        if found is None:
            raise NotFound("no erasure was asked for")
        reason = self.read(Because)["reason"]
        cancelled = erasing.cancel_erasure(erasure_id=found.id, actor=self.actor, reason=reason, key=True)
        return Response(_document(cancelled))


class _Operators(ApiView):
    needs_tenant = False

    def found(self, text: str) -> Erasure:
        return erasing.find_erasure(decode(ERASURE, text))


class ErasuresView(_Operators):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)
    parameters = frozenset({"limit", "cursor"})
    idempotent_post = True

    @extend_schema(operation_id="list_erasures", responses=page_of(ErasureDocument))
    def get(self, request: Request) -> Response:
        """Erasures of tenants, the newest first."""
        return keyset_page(request, Erasure.objects.all(), ["id"], _document, newest_first=True)

    @extend_schema(operation_id="request_erasure", request=Erase, responses={202: RequestedErasureDocument})
    def post(self, request: Request) -> Response:
        """Has everything of a tenant erased for good, after the time of grace."""
        form = self.read(Erase)
        tenant_id = tenant_uuid(form.pop("tenant_id"))
        if tenant_id is None:
            raise invalid("/tenant_id", "not a tenant's id")

        def create() -> Response:
            made = erasing.request_erasure(tenant_id=tenant_id, **form, actor=self.actor)
            return _asked(made, "/v1/admin/erasures")

        return once(request, create)


class ErasureView(_Operators):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(operation_id="get_erasure", responses=ErasureDocument)
    def get(self, request: Request, erasure: str) -> Response:
        """How far an erasure is, and what it waits for."""
        return Response(_document(self.found(erasure)))


class CancelErasureView(_Operators):
    scopes = needs(POST=Scope.OPERATOR)

    @extend_schema(operation_id="cancel_erasure", request=Because, responses=ErasureDocument)
    def post(self, request: Request, erasure: str) -> Response:
        """The tenant is not erased. Until the time of grace is over only."""
        reason = self.read(Because)["reason"]
        found = self.found(erasure)
        return Response(
            _document(erasing.cancel_erasure(erasure_id=found.id, actor=self.actor, reason=reason))
        )


class CertificateView(_Operators):
    scopes = needs(GET=Scope.OPERATOR)

    @extend_schema(
        operation_id="get_erasure_certificate",
        responses={200: CertificateDocument, 409: None},
    )
    def get(self, request: Request, erasure: str) -> Response:
        """The certificate, once everything is erased. `/erasures/keys` of the console has the public keys."""
        found = self.found(erasure)
        if found.certificate is None:
            raise Conflicting("the certificate is there once everything is erased")
        return Response(CertificateDocument(found.certificate).data)
