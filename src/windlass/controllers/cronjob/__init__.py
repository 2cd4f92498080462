"""Controller of ``batch/v1`` CronJobs."""
