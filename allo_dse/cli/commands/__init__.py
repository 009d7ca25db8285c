"""One module per command, or per group of commands about one thing; each imports what it needs when it is called."""
