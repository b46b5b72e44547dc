"""The command `colo version`."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

__all__ = ["colo_version", "version"]


def colo_version() -> str:
    """The installed version, or "0+unknown" when run from a folder that was never installed."""
    try:
        return installed("colo")
    except PackageNotFoundError:
        return "0+unknown"


def version() -> int:
    """Print the version of colo, of Python and of the event schema."""
    import platform

    print(f"colo {colo_version()}, python {platform.python_version()}, events v1")
    return 0
