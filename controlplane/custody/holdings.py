"""What is kept of an erased tenant, table by table, and why. Every other table is emptied of it.

A test compares this with the catalogue, so that of a new table of billing's it has to be decided.
"""

from __future__ import annotations

_LEDGER = "meter records and their sums, which invoices are traced to"
_MONEY = "books of account: invoices and what they were made from are kept as long as the law says"
_STRIPE = "what was told to the payment provider, to settle invoices that are open"

#: Table → why its rows stay.
KEPT: dict[str, str] = {
    "billing_meter_record": _LEDGER,
    "billing_meter_correction": _LEDGER,
    "billing_meter_conflict": _LEDGER,
    "billing_dirty_day": _LEDGER,
    "billing_usage_hour": _LEDGER,
    "billing_usage_day": _LEDGER,
    "billing_usage_month": _LEDGER,
    "billing_usage_adjustment": _LEDGER,
    "billing_drift_finding": _LEDGER,
    "billing_period": _LEDGER,
    "billing_invoice": _MONEY,
    "billing_credit_note": _MONEY,
    "billing_nothing_due": _MONEY,
    "billing_contract": _MONEY,
    "billing_account": _MONEY,
    "billing_stripe_customer": _STRIPE,
    "billing_stripe_cursor": _STRIPE,
    "billing_stripe_difference": _STRIPE,
    "custody_erasure": "that it was erased, by whom and when, with the certificate",
    "events_auditevent": "that it was erased: who asked, and when it began and ended",
}

#: What is kept elsewhere.
ELSEWHERE: dict[str, str] = {
    "ownership store": "the tenant's id, its last cell and epoch: no cell that returns may act for it",
    "erased_tenants of each cell": "the tenant's id, so that nothing brings it back",
    "routing feed": "the tenant's id for a day, so that every router learns that it is gone",
    "people": "accounts belong to the people; they are members no more",
}
