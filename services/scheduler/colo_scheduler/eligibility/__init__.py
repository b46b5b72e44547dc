"""Which nodes may take a workload at all: labels, taints, colocation, freshness, classes served, and what a node keeps for itself.

Each rule exists for one node and for all rows at once; both give the same answer.
"""
