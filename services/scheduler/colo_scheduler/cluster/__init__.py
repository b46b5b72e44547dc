"""The scheduler's data on every node: topology, capacity, holds, inventories and signals, as rows of arrays."""
