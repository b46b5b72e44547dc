"""The rules of crane: zones of pods with whole CPUs of their own, and placement by averages and maxima of load."""
