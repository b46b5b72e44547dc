"""Tests that run inside a virtual machine with the topology of a real server; `lab` boots it."""
