"""A board on a machine, polled as the flight loop does."""

from blimp.hardware.board import Board, open_board
from blimp.types import ActuatorCommand, SensorReadings
from tests.contracts.machines import Machine

PERIOD_S = 0.01
STOPPED = ActuatorCommand(motors=(0.0,) * 3, servos=(0.0,) * 3)


class Flight:
    """The machine's board, and the newest readings."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.world = machine.world
        self.board: Board = open_board(machine.airframe, buses=machine.buses, clock=machine.clock)
        self.readings = SensorReadings(t_s=0.0)

    def run(self, seconds: float, command: ActuatorCommand = STOPPED) -> SensorReadings:
        for _ in range(round(seconds / PERIOD_S)):
            self.machine.run(PERIOD_S)
            self.readings = self.board.read(self.machine.clock.now_s())
            self.board.actuators.drive(command)
        return self.readings

    def until_unhealthy(self, name: str, *, within_s: float) -> float:
        return self._until(name, sick=True, within_s=within_s)

    def until_healthy(self, name: str, *, within_s: float) -> float:
        return self._until(name, sick=False, within_s=within_s)

    def _until(self, name: str, *, sick: bool, within_s: float) -> float:
        for step in range(round(within_s / PERIOD_S)):
            self.run(PERIOD_S)
            if (name in self.readings.unhealthy) == sick:
                return step * PERIOD_S
        state = "healthy" if sick else self.board.self_test()[name]
        raise AssertionError(f"{name} still {state} after {within_s} s")
