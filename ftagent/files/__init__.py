"""How a file that belongs to the user is changed: planned, shown, backed up, replaced whole, journalled, and undone."""
