"""What a cell has counted, sealed and sent to the control plane."""
