"""The load of nodes: measured and expected use, the refusal of busy nodes, and the scores of the others.

`usage` says what is known, `estimate` what a workload will use before it has reported, `rows` judges all nodes at once.
`dynamic_rules` are the operator's rules for crane's placement by averages and maxima, which `peers` emulates.
"""
