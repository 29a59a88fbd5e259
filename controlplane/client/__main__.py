"""`python -m controlplane.client` is `clockhouse`, as `python -m clockhouse` is."""

from controlplane.client.cli import main

main()
