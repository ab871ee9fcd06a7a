"""What several tests share: models and files made byte by byte, builds of extensions, children with a memory limit."""
