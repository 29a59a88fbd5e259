from django.apps import AppConfig


class TopologyConfig(AppConfig):
    name = "controlplane.topology"
    label = "topology"
    default_auto_field = "django.db.models.BigAutoField"
