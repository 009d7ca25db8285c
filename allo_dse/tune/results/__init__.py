"""What a run has found: data frames, designs in words, files to build from."""
