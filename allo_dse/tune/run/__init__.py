"""One run from start to finish: the driver's loop, resuming, sharing with other drivers, caches."""
