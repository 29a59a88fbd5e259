"""Addresses of usage, budget, invoices and exports."""

from django.urls import path

from controlplane.console import budget, exports, invoices, usage

_T = "t/<slug:slug>/"
_I = _T + "invoices/"
_E = _T + "exports/"

money_patterns = [
    path(_T + "usage", usage.usage, name="usage"),
    path(_T + "usage/records", usage.usage_records, name="usage-records"),
    path(_T + "budget", budget.budget, name="budget"),
    path(_T + "budget/remove", budget.budget_remove, name="budget-remove"),
    path(_I, invoices.invoice_list, name="invoices"),
    path(_I + "<str:invoice_id>/", invoices.invoice, name="invoice"),
    path(_I + "<str:invoice_id>/pdf", invoices.invoice_paper, name="invoice-pdf"),
    path(_I + "<str:invoice_id>/lines/<int:n>", invoices.invoice_line, name="invoice-line"),
    path(
        _I + "<str:invoice_id>/credit-notes/<str:note_id>/pdf",
        invoices.credit_note_paper,
        name="credit-note-pdf",
    ),
    path(_E, exports.export_list, name="exports"),
    path(_E + "<str:export_id>/", exports.export, name="export"),
    path(_E + "<str:export_id>/live", exports.export_live, name="export-live"),
    path(_E + "<str:export_id>/files/<str:name>", exports.export_file, name="export-file"),
    path(_T + "export-schedules", exports.export_schedule, name="export-schedule"),
    path(
        _T + "export-schedules/<str:dataset>/remove",
        exports.export_schedule_remove,
        name="export-schedule-remove",
    ),
]
