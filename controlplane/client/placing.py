"""Cells, relocations and the map as parts of the clients: `client.cells`, `.relocations`, `.topology`."""

from __future__ import annotations

from controlplane.client import cell_calls, returned_calls
from controlplane.client.binding import AsyncPages, AsyncResource, AsyncSends, Pages, Resource, Sends


class Cells(Resource):
    """`client.cells`, for operators' keys"""

    list = Pages(cell_calls.list_cells)
    page = Sends(cell_calls.list_cells)
    get = Sends(cell_calls.get_cell)
    add = Sends(cell_calls.add_cell)
    check = Sends(cell_calls.check_cell)
    open = Sends(cell_calls.open_cell)
    cordon = Sends(cell_calls.cordon_cell)
    retire = Sends(cell_calls.retire_cell)
    plan = Sends(cell_calls.plan_relocation)
    drain = Sends(cell_calls.drain_cell)
    fill = Sends(cell_calls.fill_cell)


class Relocations(Resource):
    """`client.relocations`: cells that are drained or filled, for operators' keys"""

    list = Pages(cell_calls.list_relocations)
    page = Sends(cell_calls.list_relocations)
    get = Sends(cell_calls.get_relocation)
    pause = Sends(cell_calls.pause_relocation)
    resume = Sends(cell_calls.resume_relocation)
    stop = Sends(cell_calls.stop_relocation)


class Topology(Resource):
    """`client.topology`: where tenants live and should, for operators' keys; what came back with a region"""

    reconciliation = Pages(returned_calls.reconciliation)  # of the key's tenant
    get = Sends(cell_calls.get_topology)
    register_region = Sends(cell_calls.register_region)
    suggestions = Sends(cell_calls.list_suggestions)
    ownership = Sends(cell_calls.get_ownership)
    placements = Pages(cell_calls.list_placements)
    explain = Sends(cell_calls.explain_placement)


class AsyncCells(AsyncResource):
    """`client.cells`, for operators' keys"""

    list = AsyncPages(cell_calls.list_cells)
    page = AsyncSends(cell_calls.list_cells)
    get = AsyncSends(cell_calls.get_cell)
    add = AsyncSends(cell_calls.add_cell)
    check = AsyncSends(cell_calls.check_cell)
    open = AsyncSends(cell_calls.open_cell)
    cordon = AsyncSends(cell_calls.cordon_cell)
    retire = AsyncSends(cell_calls.retire_cell)
    plan = AsyncSends(cell_calls.plan_relocation)
    drain = AsyncSends(cell_calls.drain_cell)
    fill = AsyncSends(cell_calls.fill_cell)


class AsyncRelocations(AsyncResource):
    """`client.relocations`: cells that are drained or filled, for operators' keys"""

    list = AsyncPages(cell_calls.list_relocations)
    page = AsyncSends(cell_calls.list_relocations)
    get = AsyncSends(cell_calls.get_relocation)
    pause = AsyncSends(cell_calls.pause_relocation)
    resume = AsyncSends(cell_calls.resume_relocation)
    stop = AsyncSends(cell_calls.stop_relocation)


class AsyncTopology(AsyncResource):
    """`client.topology`: where tenants live and should, for operators' keys; what came back with a region"""

    reconciliation = AsyncPages(returned_calls.reconciliation)  # of the key's tenant
    get = AsyncSends(cell_calls.get_topology)
    register_region = AsyncSends(cell_calls.register_region)
    suggestions = AsyncSends(cell_calls.list_suggestions)
    ownership = AsyncSends(cell_calls.get_ownership)
    placements = AsyncPages(cell_calls.list_placements)
    explain = AsyncSends(cell_calls.explain_placement)
