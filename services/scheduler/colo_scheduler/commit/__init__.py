"""From a decision to a held place: the ledger commits the place, the placement is published, and lost orders are sent again."""
