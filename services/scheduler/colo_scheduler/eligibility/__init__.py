"""The nodes that may take a workload at all: by labels, taints, and the rules of sharing with batch work.

A check of all nodes exists for one node and for all rows at once; both give the same answer.
"""
