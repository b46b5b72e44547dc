"""Amounts of resources by name: the names are spelt as Kubernetes spells them."""

from collections.abc import Mapping
from typing import Final

__all__ = ["CPU", "MEMORY", "ResourceList"]

ResourceList = Mapping[str, int]
"""Amounts by resource name, in the resource's unit; one that is not named is 0."""

CPU: Final = "cpu"
"""In milli-CPU."""
MEMORY: Final = "memory"
"""In bytes."""
