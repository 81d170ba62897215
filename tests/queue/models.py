"""Runs a state machine that compares a server with its model."""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def compare(machine: type[RuleBasedStateMachine], *, examples: int) -> None:
    """examples: how many runs of 40 steps, where MODEL_EXAMPLES says nothing else."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=int(os.environ.get("MODEL_EXAMPLES", examples)),
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],  # to make a failure small takes minutes
            suppress_health_check=list(HealthCheck),
        ),
    )
