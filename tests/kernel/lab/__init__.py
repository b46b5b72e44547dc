"""The kernel lab: Debian's cloud kernel under emulation, with two NUMA nodes, hyper-threads and cgroup v2.

`just kernel-lab COMMAND` boots it, runs the command inside and returns its exit status.
"""
