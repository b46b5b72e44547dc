"""Contracts and adapters every service shares: model, events, ports, adapters, runtime."""
