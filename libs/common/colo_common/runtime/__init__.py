"""Runs a core as a service process: event loop, settings, logs, metrics, traces and health pages."""
