from django.apps import AppConfig


class MovesConfig(AppConfig):
    name = "controlplane.moves"
    label = "moves"
