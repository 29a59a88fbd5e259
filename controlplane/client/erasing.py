"""`client.erasure` (a tenant's own) and `client.erasures` (operators'), for both kinds of client."""

from __future__ import annotations

from controlplane.client import erasure_calls
from controlplane.client.binding import AsyncPages, AsyncResource, AsyncSends, Pages, Resource, Sends


class OwnErasures(Resource):
    """`client.erasure`"""

    get = Sends(erasure_calls.get_own)
    request = Sends(erasure_calls.request_own)
    cancel = Sends(erasure_calls.cancel_own)


class Erasures(Resource):
    """`client.erasures`, for operators' keys"""

    get = Sends(erasure_calls.get_erasure)
    list = Pages(erasure_calls.list_erasures)
    page = Sends(erasure_calls.list_erasures)
    request = Sends(erasure_calls.request_erasure)
    cancel = Sends(erasure_calls.cancel_erasure)
    certificate = Sends(erasure_calls.get_certificate)


class AsyncOwnErasures(AsyncResource):
    """`client.erasure`"""

    get = AsyncSends(erasure_calls.get_own)
    request = AsyncSends(erasure_calls.request_own)
    cancel = AsyncSends(erasure_calls.cancel_own)


class AsyncErasures(AsyncResource):
    """`client.erasures`, for operators' keys"""

    get = AsyncSends(erasure_calls.get_erasure)
    list = AsyncPages(erasure_calls.list_erasures)
    page = AsyncSends(erasure_calls.list_erasures)
    request = AsyncSends(erasure_calls.request_erasure)
    cancel = AsyncSends(erasure_calls.cancel_erasure)
    certificate = AsyncSends(erasure_calls.get_certificate)
