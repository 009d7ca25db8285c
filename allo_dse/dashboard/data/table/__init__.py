"""A run as columns that grow with its log."""
