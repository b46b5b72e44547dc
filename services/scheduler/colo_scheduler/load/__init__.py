"""The load of nodes: measured and expected use, the refusal of busy nodes, and the scores of the others.

`usage` says what is known of one node and what work on it is expected to use, `rows` judges all nodes at once.
`dynamic_rules` are the operator's rules for crane's placement by averages and maxima, which `peers` emulates.
"""
