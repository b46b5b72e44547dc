"""Emulations of other systems that hand out zones and CPUs or place by load: opt-in, and reached through a registry."""
