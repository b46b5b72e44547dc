"""What the scheduler knows of every node: topology, capacity, holds, inventories and signals, as rows of arrays."""
