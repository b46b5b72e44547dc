"""Reservations: a place on a node that is held for owners who come later, until they come or its time is over."""
