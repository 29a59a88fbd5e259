"""Where mails go: a server, or in development a folder whose mails operators read in their pages."""

from __future__ import annotations

import email
import email.policy
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import EmailMessage as Parsed
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.core.mail.backends.base import BaseEmailBackend

#: Older ones are removed when a new one is written.
MOST_KEPT = 500


def mail_settings(url: str) -> dict[str, Any]:
    """Django's settings for `smtp://`, `smtps://` (TLS from the start), `smtp+tls://` (STARTTLS),
    `file:///folder`, or (only with debug) nothing, which writes mails to the log."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return {"EMAIL_BACKEND": "controlplane.mail.FolderBackend", "MAIL_FOLDER": unquote(parts.path)}
    if not url:
        return {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend", "MAIL_FOLDER": ""}
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname or "127.0.0.1",
        "EMAIL_PORT": parts.port or {"smtps": 465, "smtp+tls": 587}.get(parts.scheme, 25),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp+tls",
        "EMAIL_TIMEOUT": 10,
        "MAIL_FOLDER": "",
    }


class FolderBackend(BaseEmailBackend):
    """Writes each mail as one `.eml` file, which mail programs open."""

    def send_messages(self, email_messages: Sequence[Any]) -> int:
        folder = Path(settings.MAIL_FOLDER)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for message in email_messages:
            name = f"{time.time_ns()}-{os.getpid()}"
            aside = folder / f"{name}.new"
            aside.write_bytes(message.message().as_bytes(linesep="\n"))
            aside.replace(folder / f"{name}.eml")
        for old in sorted(folder.glob("*.eml"))[:-MOST_KEPT]:
            old.unlink(missing_ok=True)
        return len(email_messages)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mail:
    """One mail of the folder."""

    name: str
    to: str
    subject: str
    date: str
    text: str


def kept_mails() -> Iterator[Mail]:
    """The folder's mails, newest first."""
    for path in sorted(Path(settings.MAIL_FOLDER).glob("*.eml"), reverse=True):
        parsed = email.message_from_bytes(path.read_bytes(), _class=Parsed, policy=email.policy.default)
        body = parsed.get_body(("plain", "html"))
        yield Mail(
            name=path.stem,
            to=str(parsed["To"]),
            subject=str(parsed["Subject"]),
            date=str(parsed["Date"]),
            text=body.get_content() if body is not None else "",
        )
