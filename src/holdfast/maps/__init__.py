"""What is done with maps: compare them, rank their values, move them with the input, choose their top features."""
