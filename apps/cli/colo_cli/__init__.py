"""The colo command."""
