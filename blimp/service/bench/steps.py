"""What is tried on the bench. A step is a function and a row in `STEPS`."""

from collections.abc import Callable

from blimp.service.bench.airframe_file import AirframeFile
from blimp.service.bench.inertial import accelerometer, gyro, level
from blimp.service.bench.magnetometer import magnetometer
from blimp.service.bench.motors import dead_bands, esc_range, motors
from blimp.service.bench.person import Person
from blimp.service.bench.servos import servos
from blimp.service.bench.ship import BenchShip
from blimp.service.bench.wires import wires

Step = Callable[[AirframeFile, BenchShip, Person], None]

# In this order: a dead band is that of an ESC with its range, level that of a true accelerometer.
STEPS: dict[str, Step] = {
    "Motors": motors,
    "ESC range": esc_range,
    "Dead bands": dead_bands,
    "Servos": servos,
    "Accelerometer": accelerometer,
    "Level": level,
    "Gyro": gyro,
    "Magnetometer": magnetometer,
    "Wires": wires,  # with propellers, and of the file that flies: last
}
