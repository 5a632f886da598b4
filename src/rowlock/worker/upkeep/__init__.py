"""What a worker does besides running jobs: heartbeats, sweeps, checks, removal of old result files."""
