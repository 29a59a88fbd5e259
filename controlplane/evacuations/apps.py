from django.apps import AppConfig


class EvacuationsConfig(AppConfig):
    name = "controlplane.evacuations"
    label = "evacuations"
