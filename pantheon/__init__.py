"""Pantheon runs large language models on the machine that is there."""
