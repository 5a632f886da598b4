"""What the measure of the job API needs: a database full of jobs, servers, and clients that cost little themselves."""
