"""Controller of CronWorkflows."""
