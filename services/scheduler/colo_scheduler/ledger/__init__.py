"""The node ledger: the holds on each node, behind one port with an implementation in Redis and one in memory."""
