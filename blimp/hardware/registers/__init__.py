"""Register maps: addresses, bits, identities and reset values. No conversion code.

Drivers and simulated chips both read these maps, and each writes its own arithmetic from
the datasheet: so they can share a register's address, and no mistake in a formula.

Names are the datasheets'. One class is one chip and only a namespace; it is never made.
"""

from blimp.hardware.registers.barometers import BMP280, BMP388, MS5611
from blimp.hardware.registers.flow import PMW3901
from blimp.hardware.registers.inertial import AK09916, BNO055, ICM20948, MPU6050, MPU6500
from blimp.hardware.registers.outputs import DRV8833, PCA9685
from blimp.hardware.registers.position import DWM1001, GNSS, MOCAP, NMEA, UBX
from blimp.hardware.registers.power import INA219, INA226, INA260
from blimp.hardware.registers.rangers import HCSR04, VL53L1X, TFLuna
from blimp.hardware.registers.receivers import CHANNELS, CRSF, SBUS

__all__ = [
    "AK09916",
    "BMP280",
    "BMP388",
    "BNO055",
    "CHANNELS",
    "CRSF",
    "DRV8833",
    "DWM1001",
    "GNSS",
    "HCSR04",
    "ICM20948",
    "INA219",
    "INA226",
    "INA260",
    "MOCAP",
    "MPU6050",
    "MPU6500",
    "MS5611",
    "NMEA",
    "PCA9685",
    "PMW3901",
    "SBUS",
    "UBX",
    "VL53L1X",
    "TFLuna",
]
