"""Decides which replica must leave a node under pressure, when and how fast. Only the executor ends processes."""
