"""Measures one node and publishes what it is and does; never writes to the kernel."""
