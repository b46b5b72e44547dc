"""The door for people and programs: HTTP API and event stream."""
