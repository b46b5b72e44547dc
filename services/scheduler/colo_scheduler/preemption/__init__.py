"""Preemption: which replicas would have to leave so that a more important one fits."""
