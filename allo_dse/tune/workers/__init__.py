"""Where designs are evaluated: this process, child processes, workers on this machine or a cluster."""
