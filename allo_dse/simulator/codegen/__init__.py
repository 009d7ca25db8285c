"""Code generation: task bodies become coroutines (`lowering`), the scheduler and FIFOs become code (`run_time`)."""
