"""The Django application."""

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Pages only: the console has no tables of its own."""

    name = "controlplane.console"
    label = "console"
