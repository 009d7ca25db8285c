"""What a study declares, checked."""
