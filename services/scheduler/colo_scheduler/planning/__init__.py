"""Where a job would go if it were submitted now."""
