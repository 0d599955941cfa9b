"""SLURM's words, all of them: options of sbatch, the script of a job, the queue's answers, the reasons of its ends."""
