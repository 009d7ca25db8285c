"""Processes that evaluators start: run under a limit, ended with all that they have started."""
