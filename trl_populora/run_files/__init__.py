"""The files of a run: their names, writing and reading them, and complete checkpoints.

It uses plain Python, so that commands can list and check runs without torch. Other modules define the content of the
files. `training` restores a trainer from a checkpoint. Adapters for an engine do not belong to a run.
"""
