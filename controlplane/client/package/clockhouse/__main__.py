"""`python -m clockhouse`: the command line."""

from controlplane.client.cli import main

if __name__ == "__main__":
    main()
