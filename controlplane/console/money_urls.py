"""Addresses of usage, budget and invoices."""

from django.urls import path

from controlplane.console import budget, invoices, usage

_T = "t/<slug:slug>/"
_I = _T + "invoices/"

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
]
