from django.apps import AppConfig


class OperatorsConfig(AppConfig):
    name = "controlplane.operators"
    label = "operators"
    default_auto_field = "django.db.models.BigAutoField"
