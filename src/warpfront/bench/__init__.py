"""Measurements: what was timed, here or in others' trainings, and what two of them say of each
other. Words.
"""
