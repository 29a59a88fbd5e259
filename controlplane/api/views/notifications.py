"""/v1/notification-rules, /v1/notification-deliveries, and the operators' own below /v1/admin."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from cells.contract import Scope
from controlplane.api.base import ApiView, with_etag
from controlplane.api.documents import page_of
from controlplane.api.forms import Because
from controlplane.api.idempotency import once
from controlplane.api.notification_documents import (
    EditNotificationRule,
    MadeNotificationRuleDocument,
    NewNotificationRule,
    NotificationDeliveryDocument,
    NotificationKindsDocument,
    NotificationRuleDocument,
    OneNotificationDeliveryDocument,
    RotateNotificationSecret,
    show_delivery,
    show_kinds,
    show_rule,
    show_whole_delivery,
)
from controlplane.api.pagination import keyset_page
from controlplane.api.permissions import needs
from controlplane.api.problems import bad_parameter
from controlplane.errors import NotFound
from controlplane.identity import decode
from controlplane.notifications import rules
from controlplane.notifications.kinds import offered
from controlplane.notifications.models import DELIVERY, RULE, Delivery, DeliveryState, NotificationRule


class _Notifications(ApiView):
    """A tenant's; the operators' own views say otherwise."""

    base = "/v1"

    @property
    def owner(self) -> uuid.UUID | None:
        """Whose rules: a tenant's, or (None) the operators'."""
        return self.tenant_id

    def named(self, prefix: str, text: str) -> uuid.UUID:
        found = decode(prefix, text)
        if found is None:
            raise NotFound("no such notification rule" if prefix == RULE else "no such delivery")
        return found

    def made(self, made: rules.Made, status: int = 200) -> Response:
        """A rule, perhaps with its secret: such an answer must stay in no cache."""
        rule = made.rule
        location = f"{self.base}/notification-rules/{rule.public_id}" if status == 201 else None
        response = with_etag(
            {**show_rule(rule), "secret": made.secret}, rule.version, status=status, location=location
        )
        response["Cache-Control"] = "no-store"
        return response


class NotificationKindsView(_Notifications):
    scopes = needs(GET=Scope.JOBS_READ)

    @extend_schema(operation_id="list_notification_kinds", responses=NotificationKindsDocument)
    def get(self, request: Request) -> Response:
        """Everything that a rule can ask for."""
        return Response(show_kinds(offered(operators=self.owner is None)))


class NotificationRulesView(_Notifications):
    scopes = needs(GET=Scope.ADMIN, POST=Scope.ADMIN)
    parameters = frozenset({"limit", "cursor"})
    idempotent_post = True

    @extend_schema(operation_id="list_notification_rules", responses=page_of(NotificationRuleDocument))
    def get(self, request: Request) -> Response:
        """Who hears of what, oldest rule first."""
        return keyset_page(request, NotificationRule.objects.filter(tenant=self.owner), ["id"], show_rule)

    @extend_schema(
        operation_id="create_notification_rule",
        request=NewNotificationRule,
        responses={201: MadeNotificationRuleDocument},
    )
    def post(self, request: Request) -> Response:
        """Tells of events from now on, by signed webhook or by mail. A webhook's secret is in this answer and
        nowhere else."""
        form = self.read(NewNotificationRule)
        reason = form.pop("reason")
        form["filters"] = dict(form["filters"])

        def create() -> Response:
            made = rules.create_rule(
                tenant_id=self.owner, wanted=rules.Wanted(**form), actor=self.actor, reason=reason
            )
            return self.made(made, 201)

        return once(request, create)


class NotificationRuleView(_Notifications):
    scopes = needs(GET=Scope.ADMIN, PATCH=Scope.ADMIN, DELETE=Scope.ADMIN)

    @extend_schema(operation_id="get_notification_rule", responses=NotificationRuleDocument)
    def get(self, request: Request, rule_id: str) -> Response:
        """One rule, and how its receiver does."""
        rule = rules.find_rule(self.named(RULE, rule_id), tenant_id=self.owner)
        return with_etag(show_rule(rule), rule.version)

    @extend_schema(
        operation_id="edit_notification_rule",
        request=EditNotificationRule,
        responses=MadeNotificationRuleDocument,
    )
    def patch(self, request: Request, rule_id: str) -> Response:
        """Changes what is named; enabling a rule that was stopped forgets why."""
        form: dict[str, Any] = self.read(EditNotificationRule)
        reason = form.pop("reason")
        if "filters" in form:
            form["filters"] = dict(form["filters"])
        made = rules.edit_rule(
            tenant_id=self.owner,
            rule_id=self.named(RULE, rule_id),
            changes=form,
            expected_version=self.expected_version(),
            actor=self.actor,
            reason=reason,
        )
        return self.made(made)

    @extend_schema(operation_id="remove_notification_rule", responses={204: None})
    def delete(self, request: Request, rule_id: str) -> Response:
        """No more of it, nor of its messages: what is not sent yet is not sent."""
        rules.remove_rule(
            tenant_id=self.owner, rule_id=self.named(RULE, rule_id), actor=self.actor, reason=""
        )
        return Response(status=204)


class TestNotificationRuleView(_Notifications):
    scopes = needs(POST=Scope.ADMIN)

    @extend_schema(
        operation_id="test_notification_rule",
        request=Because,
        responses={202: NotificationDeliveryDocument},
    )
    def post(self, request: Request, rule_id: str) -> Response:
        """Sends one event that says it is a test, once; follow it by its id."""
        delivery = rules.test_rule(
            tenant_id=self.owner,
            rule_id=self.named(RULE, rule_id),
            actor=self.actor,
            reason=self.read(Because)["reason"],
        )
        delivery.refresh_from_db()
        location = f"{self.base}/notification-deliveries/{delivery.public_id}"
        return Response(show_delivery(delivery), 202, headers={"Location": location})


class RotateNotificationSecretView(_Notifications):
    scopes = needs(POST=Scope.ADMIN)
    idempotent_post = True

    @extend_schema(
        operation_id="rotate_notification_secret",
        request=RotateNotificationSecret,
        responses=MadeNotificationRuleDocument,
    )
    def post(self, request: Request, rule_id: str) -> Response:
        """A new secret; messages are signed with both until the overlap is over."""
        form = self.read(RotateNotificationSecret)

        def rotate() -> Response:
            made = rules.rotate_secret(
                tenant_id=self.owner,
                rule_id=self.named(RULE, rule_id),
                overlap=timedelta(seconds=form["overlap_seconds"]),
                actor=self.actor,
                reason=form["reason"],
            )
            return self.made(made)

        return once(request, rotate)


class NotificationDeliveriesView(_Notifications):
    scopes = needs(GET=Scope.ADMIN)
    parameters = frozenset({"limit", "cursor", "rule_id", "state"})

    @extend_schema(
        operation_id="list_notification_deliveries", responses=page_of(NotificationDeliveryDocument)
    )
    def get(self, request: Request) -> Response:
        """Messages, newest first, for thirty days."""
        found = Delivery.objects.select_related("rule").filter(rule__tenant=self.owner, rule__removed_at=None)
        if (text := request.query_params.get("rule_id")) is not None:
            found = found.filter(rule=rules.find_rule(self.named(RULE, text), tenant_id=self.owner))
        if (state := request.query_params.get("state")) is not None:
            if state not in DeliveryState.values:
                raise bad_parameter("state", f"one of {', '.join(DeliveryState.values)}")
            found = found.filter(state=state)
        return keyset_page(request, found, ["id"], show_delivery, newest_first=True)


class NotificationDeliveryView(_Notifications):
    scopes = needs(GET=Scope.ADMIN)

    @extend_schema(operation_id="get_notification_delivery", responses=OneNotificationDeliveryDocument)
    def get(self, request: Request, delivery_id: str) -> Response:
        """One message: its events, every try, and what the receiver answered."""
        found = rules.find_delivery(self.named(DELIVERY, delivery_id), tenant_id=self.owner)
        return Response(show_whole_delivery(found))


class RedeliverNotificationView(_Notifications):
    scopes = needs(POST=Scope.ADMIN)

    @extend_schema(
        operation_id="redeliver_notification",
        request=Because,
        responses={202: NotificationDeliveryDocument},
    )
    def post(self, request: Request, delivery_id: str) -> Response:
        """Sends a message again, with the same id and content."""
        found = rules.redeliver(
            tenant_id=self.owner,
            delivery_id=self.named(DELIVERY, delivery_id),
            actor=self.actor,
            reason=self.read(Because)["reason"],
        )
        return Response(show_delivery(found), 202)
