"""The queue's page: queues, workers, failures and schedules of an app, in a browser."""
