"""`client.notifications`, for ordinary code and for coroutines."""

from __future__ import annotations

from controlplane.client import notification_calls as calls
from controlplane.client.binding import AsyncPages, AsyncResource, AsyncSends, Pages, Resource, Sends


class Notifications(Resource):
    """`client.notifications`"""

    kinds = Sends(calls.list_kinds)
    create = Sends(calls.create_rule)
    get = Sends(calls.get_rule)
    list = Pages(calls.list_rules)
    page = Sends(calls.list_rules)
    edit = Sends(calls.edit_rule)
    remove = Sends(calls.remove_rule)
    rotate_secret = Sends(calls.rotate_secret)
    test = Sends(calls.test_rule)
    deliveries = Pages(calls.list_deliveries)
    delivery = Sends(calls.get_delivery)
    redeliver = Sends(calls.redeliver)


class AsyncNotifications(AsyncResource):
    """`client.notifications`"""

    kinds = AsyncSends(calls.list_kinds)
    create = AsyncSends(calls.create_rule)
    get = AsyncSends(calls.get_rule)
    list = AsyncPages(calls.list_rules)
    page = AsyncSends(calls.list_rules)
    edit = AsyncSends(calls.edit_rule)
    remove = AsyncSends(calls.remove_rule)
    rotate_secret = AsyncSends(calls.rotate_secret)
    test = AsyncSends(calls.test_rule)
    deliveries = AsyncPages(calls.list_deliveries)
    delivery = AsyncSends(calls.get_delivery)
    redeliver = AsyncSends(calls.redeliver)
