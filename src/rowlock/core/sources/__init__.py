"""Limits, rates and breakers of outside services. Pure."""
