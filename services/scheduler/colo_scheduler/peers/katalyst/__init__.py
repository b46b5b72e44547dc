"""What Katalyst's agent does: CPUs in whole sockets and caches, behind the kubelet's topology manager."""
