"""Replicas as processes of this machine, each in a control group of its own."""
