"""Runs as they are on disk: entries of logs, and logs that grow."""
