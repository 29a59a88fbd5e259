"""Stripe: usage and invoices told to it, payments heard from it, sums compared."""
