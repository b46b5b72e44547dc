"""Who may ask what: tokens, roles, tenants, rate limits and the audit of every change."""
