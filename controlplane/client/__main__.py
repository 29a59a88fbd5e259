"""`python -m controlplane.client` is `clockhouse`."""

from controlplane.client.cli import main

main()
