"""Release: publishing images to registries, with their documents and signatures. Words."""
