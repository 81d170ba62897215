"""What a simulated picture costs: `python -m benchmarks.drawing [--turns N]`.

Processor time of one frame of 640 x 480 pixels through a lens of 66 degrees, drawn and then made a
sensor's, in milliseconds: the least of so many, in colour and in grey. In the hall that a ship
sees without a scene of its own.
"""

import argparse
import sys
import time

from benchmarks.figures import print_figures
from blimp.rotation import from_euler
from blimp.scene import hall
from blimp.sim.camera.camera import SimulatedCamera
from blimp.sim.camera.optics import Optics
from blimp.sim.camera.render import Mount, Pose

OPTICS = Optics.of_view(640, 480, horizontal_fov_deg=66.0)
# Height, pitch of the camera, turning in rad/s, read-out of a rolling shutter in s.
VIEWS = {
    "down_2.5_m": (2.5, -90.0, 0.0, 0.0),
    "down_1_m": (1.0, -90.0, 0.0, 0.0),
    "down_0.1_m": (0.1, -90.0, 0.0, 0.0),
    "turning": (2.5, -90.0, 0.5, 0.0),
    "turning_rolling": (2.5, -90.0, 0.5, 0.02),
    "ahead": (1.5, 0.0, 0.0, 0.0),
}


def frame_ms(view: tuple[float, float, float, float], *, grey: bool, turns: int) -> float:
    height_m, pitch_deg, rate_radps, readout_s = view

    def pose_at(t_s: float) -> Pose:
        return (0.1, 0.2, -height_m), from_euler(0.02, 0.01, 0.3 + rate_radps * t_s)

    mount = Mount((0.0, 0.0, 0.0), pitch_deg=pitch_deg)
    camera = SimulatedCamera(hall(), OPTICS, mount, pose_at, readout_s=readout_s, grey=grey)
    taken = []
    for turn in range(turns):
        began_s = time.thread_time()
        camera.render(0.1 * turn)
        taken.append(time.thread_time() - began_s)
    return round(1e3 * min(taken), 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    turns = parser.parse_args().turns
    print_figures(
        "benchmarks.drawing",
        {
            f"{name}_{'grey' if grey else 'rgb'}_ms": frame_ms(view, grey=grey, turns=turns)
            for name, view in VIEWS.items()
            for grey in (True, False)
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
