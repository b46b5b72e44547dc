"""Decides what must leave a node under pressure, when and how fast; asks, never kills."""
