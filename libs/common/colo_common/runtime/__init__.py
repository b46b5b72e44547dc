"""What makes a process of a core: the loop, settings, logs, metrics, traces and health pages."""
