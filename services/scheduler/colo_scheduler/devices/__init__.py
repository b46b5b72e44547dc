"""Devices of a node: what each has left, and which ones a request gets, close to each other and to its CPUs."""
