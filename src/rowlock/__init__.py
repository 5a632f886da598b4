"""Rowlock: durable background work on the database you already have."""
