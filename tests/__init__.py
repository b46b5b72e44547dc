"""The tests of colo, one package per suite."""
