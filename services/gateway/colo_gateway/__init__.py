"""The HTTP API and the event stream of the cluster."""
