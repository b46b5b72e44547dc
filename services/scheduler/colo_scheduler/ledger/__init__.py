"""The node ledger: who holds what of each node, behind one port with an implementation in Redis and one in memory."""
