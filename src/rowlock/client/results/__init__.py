"""Result files of jobs, in a local folder or in object storage."""
