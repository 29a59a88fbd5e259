"""Where mails go, by address."""

from __future__ import annotations

import pytest

from controlplane.mail import mail_settings


def test_nothing_writes_to_the_log() -> None:
    assert mail_settings("") == {
        "EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend",
        "MAIL_FOLDER": "",
    }


def test_a_folder() -> None:
    found = mail_settings("file:///var/mail%20here")
    assert (found["MAIL_FOLDER"], found["EMAIL_BACKEND"]) == (
        "/var/mail here",
        "controlplane.mail.FolderBackend",
    )


@pytest.mark.parametrize(
    ("url", "port", "ssl", "tls"),
    [
        ("smtp://u%40x:p%3A@mail.example.com", 25, False, False),
        ("smtps://u%40x:p%3A@mail.example.com", 465, True, False),
        ("smtp+tls://u%40x:p%3A@mail.example.com", 587, False, True),
        ("smtp+tls://u%40x:p%3A@mail.example.com:2525", 2525, False, True),
    ],
)
def test_servers(url: str, port: int, ssl: bool, tls: bool) -> None:
    found = mail_settings(url)
    assert (found["EMAIL_HOST"], found["EMAIL_PORT"]) == ("mail.example.com", port)
    assert (found["EMAIL_USE_SSL"], found["EMAIL_USE_TLS"]) == (ssl, tls)
    assert (found["EMAIL_HOST_USER"], found["EMAIL_HOST_PASSWORD"]) == ("u@x", "p:")
