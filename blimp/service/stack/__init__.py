"""Keeps the processes of a stack and their broker alive, without systemd."""
