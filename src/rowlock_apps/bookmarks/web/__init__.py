"""Reads pages that strangers chose, safe against server-side request forgery and endless answers."""
