"""Commands apart from the pipeline: they start from a project and make no image."""
