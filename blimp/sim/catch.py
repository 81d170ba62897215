"""What a simulated ship catches: a balloon sticks to its hook where it touches it."""

from math import dist

from blimp.rotation import rotate
from blimp.sim.world import World
from blimp.types import Vec3


class Catcher:
    """A hook or a net at a place of the ship, and the balloons around it.

    hook_body_m: from the centre of buoyancy. reach_m: from the hook to a balloon's skin. drift:
    balloons are weighed out and go with the wind. A caught one hangs on the hook, without weight.
    balloons: the list to move, (north, east, down) from the floor: a camera's.
    """

    def __init__(
        self,
        world: World,
        balloons: list[Vec3],
        *,
        diameter_m: float,
        hook_body_m: Vec3,
        reach_m: float,
        stand_m: float,
    ) -> None:
        self._world, self._balloons = world, balloons
        self._touch_m = reach_m + 0.5 * diameter_m
        self._hook_m, self._stand_m = hook_body_m, stand_m
        self.caught: int | None = None

    @property
    def hook_ned_m(self) -> Vec3:
        """Where the hook is, from the floor."""
        truth = self._world.truth
        x, y, z = rotate(truth.attitude, self._hook_m)
        north, east, down = truth.position_ned_m
        return (north + x, east + y, down + z - self._stand_m)

    def update(self, dt_s: float) -> None:
        """Move the balloons, and catch what touches the hook."""
        wind = self._world.physics.wind.velocity_ned_mps
        hook = self.hook_ned_m
        for number, (north, east, down) in enumerate(self._balloons):
            if number == self.caught:
                self._balloons[number] = hook
                continue
            place = (north + wind[0] * dt_s, east + wind[1] * dt_s, down)
            self._balloons[number] = place
            if self.caught is None and dist(place, hook) < self._touch_m:
                self.caught = number
