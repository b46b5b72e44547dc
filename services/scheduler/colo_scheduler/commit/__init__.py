"""From a decision to a held place: the ledger is asked, its answer is published, and what was lost is delivered again."""
