"""Verification as the host sees it: what the results of the checks allow, and how a
run ended. Words.
"""
