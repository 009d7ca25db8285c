"""What is known and wanted during a search: objectives, front, ladder of evaluators, budgets, proposals."""
