"""Decides which node, zones and CPUs a replica gets, and commits the placement to the node ledger."""
