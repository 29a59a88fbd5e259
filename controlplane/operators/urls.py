"""Operators' own pages, inside the admin's frame."""

from django.urls import path

from controlplane.operators import (
    cells,
    erasures,
    evacuations,
    moves,
    notifications,
    regions,
    rehearsals,
    relocations,
    returns,
    system,
    tenants,
    topology,
)
from controlplane.operators.money_urls import money_patterns

app_name = "operators"

urlpatterns = [
    path("cells/", cells.cell_list, name="cells"),
    path("cells/<slug:name>/", cells.one_cell, name="cell"),
    path("cells/<slug:name>/lengthen", cells.lengthen, name="cell-lengthen"),
    path("cells/<slug:name>/<slug:kind>", relocations.plan, name="relocation-plan"),
    path("relocations/<str:relocation>/", relocations.one_relocation, name="relocation"),
    path("cells/<slug:name>/sites/<slug:region>/<slug:verb>", regions.site_wish, name="site-wish"),
    path("regions/", regions.region_map, name="regions"),
    path("regions/<slug:name>/rehearse", rehearsals.plan, name="rehearsal-plan"),
    path("regions/<slug:name>/<slug:kind>", evacuations.plan, name="evacuation-plan"),
    path("evacuations/<str:evacuation>/", evacuations.one_evacuation, name="evacuation"),
    path("rehearsals/<str:rehearsal>/", rehearsals.one_rehearsal, name="rehearsal"),
    path("rehearsals/<str:rehearsal>/report.<slug:form>", rehearsals.report_file, name="rehearsal-report"),
    path("topology/", topology.topology_map, name="topology"),
    path("placements/", topology.placement_list, name="placements"),
    path("ownership/", topology.ownership, name="ownership"),
    path("returns/", returns.return_list, name="returns"),
    path("returns/<slug:slug>.jsonl", returns.return_file, name="return-file"),
    path("moves/", moves.move_list, name="moves"),
    path("moves/<str:move>/", moves.one_move, name="move"),
    path("moves/<str:move>/abort", moves.move_abort, name="move-abort"),
    path("tenants/", tenants.tenant_list, name="tenants"),
    path("tenants/<slug:slug>/", tenants.one_tenant, name="tenant"),
    path("tenants/<slug:slug>/delays", tenants.delays, name="tenant-delays"),
    path("tenants/<slug:slug>/<slug:verb>", tenants.tenant_action, name="tenant-action"),
    *money_patterns,
    path("notifications/", notifications.rule_list, name="notifications"),
    path("notifications/<str:rule>/", notifications.one_rule, name="notification"),
    path("notifications/<str:rule>/<slug:verb>", notifications.rule_act, name="notification-act"),
    path("deliveries/<str:delivery>/redeliver", notifications.redeliver, name="notification-redeliver"),
    path("erasures/", erasures.erasure_list, name="erasures"),
    path("erasures/<str:erasure>/cancel", erasures.erasure_cancel, name="erasure-cancel"),
    path("erasures/<str:erasure>/certificate", erasures.erasure_certificate, name="erasure-certificate"),
    path("system/", system.system, name="system"),
    path("mail/", system.mails, name="mail"),
]
