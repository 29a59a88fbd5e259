"""The control plane: who exists, what they may use, where they live.

Kept empty of imports on purpose: the router (`controlplane.routing`) and the client run
without Django.
"""
