"""Image layers made from single wheels; needs the extra `layers`. Words."""
