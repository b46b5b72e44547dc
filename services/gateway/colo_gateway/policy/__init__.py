"""The colocation policy: its document, its row, its routes."""
