"""Notification rules of operators, below /v1/admin: they may hear of everything, of every tenant."""

from __future__ import annotations

import uuid

from drf_spectacular.utils import extend_schema, extend_schema_view

from cells.contract import Scope
from controlplane.api.permissions import needs
from controlplane.api.views import notifications as tenants


class _Operators:
    base = "/v1/admin"
    needs_tenant = False

    @property
    def owner(self) -> uuid.UUID | None:
        """Nobody's but the operators'."""
        return None


def _named(**ids: str):  # type: ignore[no-untyped-def]
    return extend_schema_view(**{method: extend_schema(operation_id=id_) for method, id_ in ids.items()})


@_named(get="list_operator_notification_kinds")
class KindsView(_Operators, tenants.NotificationKindsView):
    scopes = needs(GET=Scope.OPERATOR)


@_named(get="list_operator_notification_rules", post="create_operator_notification_rule")
class RulesView(_Operators, tenants.NotificationRulesView):
    scopes = needs(GET=Scope.OPERATOR, POST=Scope.OPERATOR)


@_named(
    get="get_operator_notification_rule",
    patch="edit_operator_notification_rule",
    delete="remove_operator_notification_rule",
)
class RuleView(_Operators, tenants.NotificationRuleView):
    scopes = needs(GET=Scope.OPERATOR, PATCH=Scope.OPERATOR, DELETE=Scope.OPERATOR)


@_named(post="test_operator_notification_rule")
class TestView(_Operators, tenants.TestNotificationRuleView):
    scopes = needs(POST=Scope.OPERATOR)


@_named(post="rotate_operator_notification_secret")
class RotateView(_Operators, tenants.RotateNotificationSecretView):
    scopes = needs(POST=Scope.OPERATOR)


@_named(get="list_operator_notification_deliveries")
class DeliveriesView(_Operators, tenants.NotificationDeliveriesView):
    scopes = needs(GET=Scope.OPERATOR)


@_named(get="get_operator_notification_delivery")
class DeliveryView(_Operators, tenants.NotificationDeliveryView):
    scopes = needs(GET=Scope.OPERATOR)


@_named(post="redeliver_operator_notification")
class RedeliverView(_Operators, tenants.RedeliverNotificationView):
    scopes = needs(POST=Scope.OPERATOR)
