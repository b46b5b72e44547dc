"""The table of restrictions, which this process owns: what operators forbid, on which nodes, jobs and queues."""
