"""Values of the domain, and the rules about them. Nothing here reads a clock, a file, the network or a random number."""
