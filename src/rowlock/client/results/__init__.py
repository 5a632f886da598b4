"""Files that jobs make, in a local folder or in object storage."""
