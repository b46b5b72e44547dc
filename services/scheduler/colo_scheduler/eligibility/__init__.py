"""Which nodes may take a workload at all: labels, taints, and whether they are shared with batch work.

What is asked of all nodes exists for one node and for all rows at once; both give the same answer.
"""
