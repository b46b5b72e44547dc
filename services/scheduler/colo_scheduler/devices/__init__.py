"""The devices of a node: the free part of each, and the choice for a request, close to each other and to its CPUs."""
