"""How good a node is: scorers from 0 to 100, rounded down; the policy has the weights that make one number of them.

Each scorer exists for one node and, ending in `_of_rows`, for all rows at once; both give the same integers. A score depends on
nothing but its own node.
"""
