"""Which version of colo runs."""

import importlib.metadata

__all__ = ["build_version"]


def build_version() -> str:
    """The version of the installed distribution, or 0.0.0 where it is not installed."""
    try:
        return importlib.metadata.version("colo")
    except importlib.metadata.PackageNotFoundError:
        return "0.0.0"
