"""What keeps the promises of the ports: NATS, Redis, clocks, and their twins in memory."""
