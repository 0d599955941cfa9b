"""English, for readers on both sides of the ocean."""
