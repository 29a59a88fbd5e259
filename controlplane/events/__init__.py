"""What happened (audit), what routers must hear (feed), what must still be done (outbox)."""
