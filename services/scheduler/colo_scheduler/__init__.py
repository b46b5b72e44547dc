"""Decides which node, zones and CPUs a replica gets, and commits it to the node ledger."""
