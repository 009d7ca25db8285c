"""What shall build the winner of a study, and the rules it builds by."""
