"""PyTorch's own operator database (OpInfo) as an outside suite: inputs that its maintainers chose,
judged by our rules.
"""
