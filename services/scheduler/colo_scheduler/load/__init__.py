"""Real load of nodes: what is used and what will be, which nodes are too busy, and how good the others are.

`usage` says what is known, `estimate` what a workload will use before it has reported, `rows` judges all nodes at once.
`dynamic_rules` are the operator's rules for crane's placement by averages and maxima, which `peers` emulates.
"""
