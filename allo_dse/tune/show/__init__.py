"""What a run shows while it works and when it ends."""
