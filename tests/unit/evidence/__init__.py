"""The measurements of tests/evidence on cases that are counted by hand."""
