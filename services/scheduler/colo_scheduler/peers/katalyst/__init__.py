"""The rules of Katalyst's agent: CPUs in whole sockets and caches, behind the kubelet's topology manager."""
