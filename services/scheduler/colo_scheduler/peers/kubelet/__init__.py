"""The rules of the kubelet for zones and CPUs: its topology manager and the static policy of its CPU manager."""
