"""What a process that works on jobs runs: claim, execute, settle, heartbeat, sweep, dispatch."""
