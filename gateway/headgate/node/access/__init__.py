"""Who may be here, and what each may do."""
