"""How people sign in: allauth, with what is particular to us."""

from __future__ import annotations

import base64

from allauth.account.adapter import DefaultAccountAdapter
from allauth.mfa.adapter import DefaultMFAAdapter
from django.http import HttpRequest

from controlplane.topology.cell_keys import installation_sealer

_MFA = b"mfa"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]
    """Accounts are made by invitation: a member added by email sets a password by mail."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def format_email_subject(self, subject: str) -> str:
        return " ".join(subject.split())


class MfaAdapter(DefaultMFAAdapter):  # type: ignore[misc]
    """Secrets of second factors are sealed at rest, as every secret is."""

    def encrypt(self, text: str) -> str:
        return base64.b64encode(installation_sealer().seal(text.encode(), context=_MFA)).decode()

    def decrypt(self, encrypted_text: str) -> str:
        return installation_sealer().open(base64.b64decode(encrypted_text), context=_MFA).decode()
