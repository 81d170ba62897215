"""The text of the file that `blimp airframe new` writes."""

TEMPLATE = """\
# {plan.name}: written by `blimp airframe new`. "measured" is what the builder said; the rest
# follows by the formula beside it or is an assumption, marked so: measure it, and write it here.
# Body frame: x forward, y right, z down, origin at the balloon's centre.

name = "{plan.name}"
description = "{shape} balloon, {layout.text}"
source = "Measured by its builder; Lamb for added mass, GT-MAB and Blimp2b scaled for drag"

[hull]
length_m = {length:.4f}
diameter_m = {wide:.4f}
height_m = {high:.4f}
volume_m3 = {volume:.5f} # from the lengths
helium_purity = {plan.purity:g} # measured, or the dealer's word

[mass]
heaviness_kg = {heaviness:.5f} # 0.4 % of the displaced air, so that it comes down when all fails
# Sums over the items below.
inertia_kg_m2 = [{inertia[0]:.6f}, {inertia[1]:.6f}, {inertia[2]:.6f}]
center_of_gravity_m = [0.0, 0.0, {center:.4f}]

[[mass.item]]
name = "envelope" # measured; a thin shell
mass_kg = {envelope:.5f}
position_m = [0.0, 0.0, 0.0]
inertia_kg_m2 = [{shell[0]:.6f}, {shell[1]:.6f}, {shell[2]:.6f}]

[[mass.item]]
name = "helium" # volume_m3 of this purity at 15 degrees
mass_kg = {gas:.5f}
position_m = [0.0, 0.0, 0.0]
inertia_kg_m2 = [{solid[0]:.6f}, {solid[1]:.6f}, {solid[2]:.6f}]

[[mass.item]]
name = "gondola" # measured; a box of 16 x 6 x 4 cm, 6 cm below the balloon (assumed)
mass_kg = {gondola:.5f}
position_m = [0.0, 0.0, {below:.4f}]
inertia_kg_m2 = [{box[0]:.7f}, {box[1]:.7f}, {box[2]:.7f}]

[[mass.item]]
name = "ballast" # what is left
mass_kg = {ballast:.5f}
position_m = [0.0, 0.0, {under:.4f}]

[aero]
# Lamb's factors of a spheroid of these axes.
added_mass_kg = [{axial:.5f}, {lateral:.5f}, {heave:.5f}]
added_inertia_kg_m2 = [{roll:.6f}, {pitch:.6f}, {yaw:.6f}]
# GT-MAB's, by area and, in rotation, by the fourth power of length.
linear_drag = [
  {linear[0]:.5f}, {linear[1]:.5f}, {linear[2]:.5f},
  {linear[3]:.6f}, {linear[3]:.6f}, {linear[3]:.6f}
]
# Blimp2b's, by area.
quadratic_drag = [{quadratic[0]:.4f}, {quadratic[1]:.4f}, {quadratic[2]:.4f}, 0.0, 0.0, 0.0]

[ground]
# Assumed: hook-and-loop feet that hold a tenth of the lift.
feet_m = [
  [{foot:.3f}, -{foot:.3f}, {feet:.3f}], [{foot:.3f}, {foot:.3f}, {feet:.3f}],
  [-{foot:.3f}, -{foot:.3f}, {feet:.3f}], [-{foot:.3f}, {foot:.3f}, {feet:.3f}]
]
friction = 0.6
grip_n = {hold:.5f}
hold_n = {hold:.5f}

# Thrust measured, in newtons: 1 g on the scale is 0.0098 N. Reverse, exponent and lag assumed:
# `blimp bench` measures the dead band.
{outputs}
# Assumed: one cell of 600 mAh.
[battery]
cells = 1
capacity_ah = 0.6
resistance_ohm = 0.1
idle_current_a = 0.2
warn_v = 3.5
empty_v = 3.2

# Wiring: assumed; `blimp wiring FILE` draws it, docs/chips.md has other chips.
[[device]]
name = "power"
chip = "ina219"
bus = "i2c-1"
address = 0x41

[[device]]
name = "imu"
chip = "{plan.imu}"
bus = "i2c-1"
address = 0x{imu.addresses[0]:02x}
rate_hz = {imu.rate_hz}

[[device]]
name = "baro"
chip = "{plan.baro}"
bus = "i2c-1"
address = 0x{baro.addresses[0]:02x}
rate_hz = {baro.rate_hz}

[[device]]
name = "ranger" # looks down
chip = "tfluna"
bus = "i2c-1"
address = 0x10
rate_hz = 50.0

{drivers}
[[device]]
name = "{position.role}"
chip = "{plan.position}"
bus = "serial"
port = "/dev/ttyAMA0"
baud = {position.baud}
rate_hz = {position.rate_hz}

# Those of blimp2b.
[gains]
position_p = 0.25
velocity_p = 0.5
velocity_i = 0.03
height_p = 0.5
climb_p = 1.0
climb_i = 0.1
yaw_p = 0.6
yaw_rate_p = 1.5
yaw_rate_i = 0.1
swing_damping = 0.15

[limits]
speed_mps = {speed:.2f} # 0.4 of what full thrust reaches, at most 0.7
climb_mps = {climb:.2f}
descent_mps = {climb:.2f}
column_mps = {climb:.2f}
touchdown_mps = 0.15
acceleration_mps2 = {acceleration:.3f} # half of what full thrust gives
yaw_rate_radps = 0.4
max_altitude_m = 5.0
max_distance_m = 20.0

# Assumed: write where the pad is.
[home]
latitude_deg = 0.0
longitude_deg = 0.0
altitude_msl_m = 0.0
"""
