"""Reservations: a place on a node that is held for later owners, until they are placed or the reservation expires."""
