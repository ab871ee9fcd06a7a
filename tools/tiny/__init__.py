"""Parts of tools/make_tiny_models.py: the tiny models' recipes, their reference logits and their GGUF files."""
