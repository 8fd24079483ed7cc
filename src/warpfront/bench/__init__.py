"""Measurements, here or in others' trainings, and comparisons of two. Words."""
