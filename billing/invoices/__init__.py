"""Invoices and credit notes: drafted from closed periods, numbered without gaps, never changed."""
