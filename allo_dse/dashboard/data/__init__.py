"""What the dashboard shows, as plain arrays: run directories read as they grow, filters, selections, analyses."""
