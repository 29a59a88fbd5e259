"""Operators' pages of meters and money."""

from django.urls import path

from controlplane.operators import bills, contracts, exports, margins, meters, prices

money_patterns = [
    path("money/", margins.margin_list, name="money"),
    path("meters/", meters.meter_list, name="meters"),
    path("meters/conflicts/<int:conflict_id>", meters.conflict_settle, name="conflict-settle"),
    path("meters/drift/<int:finding_id>", meters.drift_settle, name="drift-settle"),
    path("periods/", meters.period_list, name="periods"),
    path("periods/<slug:slug>/<str:month>/close", meters.period_close, name="period-close"),
    path("invoices/", bills.bill_list, name="invoices"),
    path("invoices/<str:invoice_id>/", bills.bill, name="invoice"),
    path("invoices/<str:invoice_id>/pdf", bills.bill_paper, name="invoice-pdf"),
    path("invoices/<str:invoice_id>/<slug:verb>", bills.bill_act, name="invoice-act"),
    path("exports/", exports.export_list, name="exports"),
    path("exports/schedules", exports.export_schedule, name="export-schedule"),
    path("exports/<str:export_id>/files/<str:name>", exports.export_file, name="export-file"),
    path("prices/", prices.price_list, name="prices"),
    path("prices/new", prices.price_new, name="price-new"),
    path("prices/<str:book_id>/withdraw", prices.price_withdraw, name="price-withdraw"),
    path("contracts/", contracts.contract_list, name="contracts"),
    path("contracts/new/<slug:slug>/", contracts.contract_new, name="contract-new"),
    path("contracts/<str:contract_id>/end", contracts.contract_end, name="contract-end"),
]
