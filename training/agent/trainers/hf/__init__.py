"""The parts of hf-text-classification, from the weights' files to the predictions."""
