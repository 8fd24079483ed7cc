"""Images: how wheels become one. Rendered, guarded, baked, labelled, run in an engine. Words."""
