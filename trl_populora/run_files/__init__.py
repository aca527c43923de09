"""The files of a run: what they are called, how they are written and read, which checkpoints are whole.

Plain Python: the commands list and check runs without torch. What is in the files belongs to those who fill them, and
restoring a trainer from a checkpoint to `training`. The adapter files that an engine reads are no files of a run.
"""
