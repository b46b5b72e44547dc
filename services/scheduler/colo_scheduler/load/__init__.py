"""Real load of nodes: what is used and what will be, which nodes are too busy, and how good the others are.

`usage` says what is known, `estimate` what a workload will use before it has reported, `rows` judges all nodes at once. `dynamic`
and `hot_value` judge by averages and maxima and by how many came lately.
"""
