from django.apps import AppConfig


class RehearsalsConfig(AppConfig):
    name = "controlplane.rehearsals"
    label = "rehearsals"
