"""What a program that enqueues jobs imports: tasks, enqueue, handles, batches, schedules."""
