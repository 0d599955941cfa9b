"""Model training for annotation studies: runs, the places they run at, and what comes back."""
