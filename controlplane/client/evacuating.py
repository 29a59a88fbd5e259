"""Parts of the clients: `client.evacuations`, `client.sites`, `client.rehearsals`."""

from __future__ import annotations

from functools import cached_property

from controlplane.client import evacuation_calls, rehearsal_calls
from controlplane.client.binding import AsyncPages, AsyncResource, AsyncSends, Pages, Resource, Sends
from controlplane.client.transport import AsyncTransport, Transport


class Evacuations(Resource):
    """`client.evacuations`: regions that are left or come back to, for operators' keys"""

    list = Pages(evacuation_calls.list_evacuations)
    page = Sends(evacuation_calls.list_evacuations)
    plan = Sends(evacuation_calls.plan_evacuation)
    start = Sends(evacuation_calls.start_evacuation)
    get = Sends(evacuation_calls.get_evacuation)
    pause = Sends(evacuation_calls.pause_evacuation)
    resume = Sends(evacuation_calls.resume_evacuation)
    abort = Sends(evacuation_calls.abort_evacuation)


class Sites(Resource):
    """`client.sites`: a cell's presence in each region, for operators' keys"""

    list = Sends(evacuation_calls.list_sites)
    register = Sends(evacuation_calls.register_site)
    plan = Sends(evacuation_calls.plan_wish)
    ask = Sends(evacuation_calls.ask_wish)


class Rehearsals(Resource):
    """`client.rehearsals`: regions that are cut off on purpose, for operators' keys"""

    list = Pages(rehearsal_calls.list_rehearsals)
    page = Sends(rehearsal_calls.list_rehearsals)
    plan = Sends(rehearsal_calls.plan_rehearsal)
    start = Sends(rehearsal_calls.start_rehearsal)
    get = Sends(rehearsal_calls.get_rehearsal)
    report = Sends(rehearsal_calls.get_rehearsal_report)


class AsyncEvacuations(AsyncResource):
    """`client.evacuations`: regions that are left or come back to, for operators' keys"""

    list = AsyncPages(evacuation_calls.list_evacuations)
    page = AsyncSends(evacuation_calls.list_evacuations)
    plan = AsyncSends(evacuation_calls.plan_evacuation)
    start = AsyncSends(evacuation_calls.start_evacuation)
    get = AsyncSends(evacuation_calls.get_evacuation)
    pause = AsyncSends(evacuation_calls.pause_evacuation)
    resume = AsyncSends(evacuation_calls.resume_evacuation)
    abort = AsyncSends(evacuation_calls.abort_evacuation)


class AsyncSites(AsyncResource):
    """`client.sites`: a cell's presence in each region, for operators' keys"""

    list = AsyncSends(evacuation_calls.list_sites)
    register = AsyncSends(evacuation_calls.register_site)
    plan = AsyncSends(evacuation_calls.plan_wish)
    ask = AsyncSends(evacuation_calls.ask_wish)


class AsyncRehearsals(AsyncResource):
    """`client.rehearsals`: regions that are cut off on purpose, for operators' keys"""

    list = AsyncPages(rehearsal_calls.list_rehearsals)
    page = AsyncSends(rehearsal_calls.list_rehearsals)
    plan = AsyncSends(rehearsal_calls.plan_rehearsal)
    start = AsyncSends(rehearsal_calls.start_rehearsal)
    get = AsyncSends(rehearsal_calls.get_rehearsal)
    report = AsyncSends(rehearsal_calls.get_rehearsal_report)


class Regional:
    """What a client has about regions."""

    _transport: Transport

    @cached_property
    def evacuations(self) -> Evacuations:
        """Regions that are left or come back to."""
        return Evacuations(self._transport)

    @cached_property
    def sites(self) -> Sites:
        """A cell's presence in each region."""
        return Sites(self._transport)

    @cached_property
    def rehearsals(self) -> Rehearsals:
        """Regions that are cut off on purpose."""
        return Rehearsals(self._transport)


class AsyncRegional:
    """What a client has about regions."""

    _transport: AsyncTransport

    @cached_property
    def evacuations(self) -> AsyncEvacuations:
        """Regions that are left or come back to."""
        return AsyncEvacuations(self._transport)

    @cached_property
    def sites(self) -> AsyncSites:
        """A cell's presence in each region."""
        return AsyncSites(self._transport)

    @cached_property
    def rehearsals(self) -> AsyncRehearsals:
        """Regions that are cut off on purpose."""
        return AsyncRehearsals(self._transport)
