"""How people sign in: allauth, with what is particular to us."""

from __future__ import annotations

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Accounts are made by invitation: a member added by email sets a password by mail."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False
