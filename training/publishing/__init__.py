"""Publishing: what of a run goes to the Hugging Face Hub, the card that goes with it, and the way there."""
