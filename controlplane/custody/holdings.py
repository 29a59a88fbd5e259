"""What is kept of an erased tenant, table by table, and why. Every other table is emptied of it.

A test compares this with the catalogue, so that of a new table of billing's it has to be decided.
"""

from __future__ import annotations

_LEDGER = "meter records and their sums, which invoices are traced to"
_MONEY = "books of account: invoices and what they were made from are kept as long as the law says"
_STAYS = "where it lived when: meter records are checked against it, and its last months closed"
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
    "billing_account": "its name and the addresses of invoices: what it owes is billed when it is gone",
    "billing_sent_mail": "which invoices were mailed, so that none is mailed twice",
    "topology_tenure": _STAYS,
    "billing_stripe_customer": _STRIPE,
    "billing_stripe_cursor": _STRIPE,
    "billing_stripe_difference": _STRIPE,
    "custody_erasure": "that it was erased, by whom and when, with the certificate",
    "events_auditevent": "that it was erased: who asked, and when it began and ended",
}

#: What is kept elsewhere.
ELSEWHERE: dict[str, str] = {
    "erased_tenants of each cell": "the tenant's id, so that nothing brings it back",
    "routing feed": "the tenant's id for a day, so that every router learns that it is gone",
    "cells restored from a backup": "may work for it until they are asked whom they refuse, some minutes"
    " after they are back; then they erase it again",
    "sites that went on alone": "a file beside the site's data with what only it had, until that was handed"
    " in and the site follows again; where an operator gave the handing in up, until it is removed there",
    "people": "accounts belong to the people; they are members no more",
}
