"""Graders, each a metric of Hugging Face `evaluate`: one file each."""
