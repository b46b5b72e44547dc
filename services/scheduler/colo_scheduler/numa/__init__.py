"""Which NUMA zones of one node hold a request, and how much of each: hints, merge, policies, fit and scores. Pure, integers
only.

`fit.fit_zones` is the entry for a scheduler. ResourceList are plain mappings from resource name to integer: `cpu` in milli-CPU,
`memory` and `hugepages-<size>` in bytes, devices counted.
"""
