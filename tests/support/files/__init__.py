"""What is compared with a committed file, or read out of one: golden files, plans, schemas."""
