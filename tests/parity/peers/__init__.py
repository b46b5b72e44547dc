"""What other systems compute and colo does not: restated from their sources, for the tables that record their results.

No service imports this package. A case that is answered from here counts as `reference only` (`tests.parity.table.Reference`).
"""
