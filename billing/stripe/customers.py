"""Tenants as customers of Stripe."""

from __future__ import annotations

import uuid

import stripe

from billing.ids import TENANT, encode
from billing.pricing.accounts import Account, account_of
from billing.stripe.models import StripeCustomer


def ensure_customer(client: stripe.StripeClient, tenant_id: uuid.UUID) -> str:
    """The customer's id at Stripe; made if there is none, told when the billing account changed."""
    account = account_of(tenant_id)
    row = StripeCustomer.objects.filter(pk=tenant_id).first()
    if row is None:
        known = _find(client, tenant_id) or client.v1.customers.create(
            {**_details(account), "metadata": {"tenant_id": encode(TENANT, tenant_id)}},
            {"idempotency_key": f"customer-{tenant_id}"},
        )
        row, _ = StripeCustomer.objects.get_or_create(
            tenant_id=tenant_id, defaults={"customer": known.id, "version": account.version}
        )
    elif row.version != account.version:
        client.v1.customers.update(row.customer, _details(account))
        StripeCustomer.objects.filter(pk=tenant_id).update(version=account.version)
    return str(row.customer)


def _details(account: Account) -> stripe.params.CustomerCreateParams:
    return {
        "name": account.recipient["name"][:256],
        **({"email": account.emails[0]} if account.emails else {}),
    }


def _find(client: stripe.StripeClient, tenant_id: uuid.UUID) -> stripe.Customer | None:
    """One that a request made whose answer never came, longer ago than Stripe keeps its key."""
    wanted = encode(TENANT, tenant_id)
    emails = account_of(tenant_id).emails
    if not emails:
        return None
    found = client.v1.customers.list({"email": emails[0], "limit": 100})
    for customer in found.auto_paging_iter():
        if customer.metadata is not None and customer.metadata.to_dict().get("tenant_id") == wanted:
            return customer
    return None
