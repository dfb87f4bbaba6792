"""What all simulated protocols share: world, network, processes, faults, calls, history, plans."""
