"""What the kubelet does with zones and CPUs: its topology manager and the static policy of its CPU manager."""
