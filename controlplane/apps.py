from django.apps import AppConfig


class ControlPlaneConfig(AppConfig):
    """The project itself: its commands, and the Celery application that tasks bind to."""

    name = "controlplane"
    label = "controlplane"

    def ready(self) -> None:
        # Imported for its effect: makes this process's shared tasks use our broker.
        from controlplane import celery  # noqa: F401
