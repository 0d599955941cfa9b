"""What travels to a training machine: standard library only, Python 3.8 or newer."""
