"""The Training pages: what runs, starting a run, and one page for each run; part of Django's admin."""
