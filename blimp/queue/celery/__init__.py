"""What exists for the sake of Celery and kombu: transport, brokers, events, remote control."""
