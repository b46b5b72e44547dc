"""What a workload's class means on a machine: who may have it, whether it gets CPUs of its own, and which."""
