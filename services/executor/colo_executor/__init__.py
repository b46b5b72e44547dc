"""Makes one node's kernel match what was promised; the only writer of the kernel."""
