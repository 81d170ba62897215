"""Every chip there is a driver for, one row each: what an airframe may name as `chip`.

A row names its driver and its simulated twin and imports neither: flight code loads drivers, the
simulator loads twins, and the estimator learns here what a device measures without knowing drivers.
"""

from functools import cache
from importlib import import_module
from typing import Any

import msgspec

_BME = (0x76, 0x77)  # SDO low, SDO high
_MPU = (0x68, 0x69)  # AD0 low, AD0 high
_MS = (0x77, 0x76)  # CSB low, CSB high
_INA = tuple(range(0x40, 0x50))  # A1 and A0 each to GND, VS, SDA or SCL


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """One chip, as its data sheet and the boards that carry it have it.

    driver, twin: "module:Class"; a module that begins with a dot is in blimp.hardware, and of the
    twin in blimp.sim.chips. role: the field of SensorReadings that it fills; "" drives motors or
    servos. supply: what powers it, for the drawing of the wiring. addresses: what its pins or its
    settings allow on I2C, the one that boards come with first. baud: of its serial port, as
    delivered. rate_hz: at which it is usually asked. registers: the classes in
    blimp/hardware/registers that driver and twin read.
    """

    driver: str
    twin: str
    role: str = ""
    supply: str
    addresses: tuple[int, ...] = ()
    baud: int = 0
    rate_hz: float = 10.0
    registers: tuple[str, ...] = ()


@cache
def load(path: str, package: str) -> Any:
    """Return the class that a row names; a module that begins with a dot is of this package."""
    module, _, name = path.partition(":")
    return getattr(import_module(module, package), name)


def role_of(chip: str) -> str:
    """Return which sample of `SensorReadings` a chip makes; "" if none."""
    return CHIPS[chip].role if chip in CHIPS else ""


CHIPS: dict[str, Chip] = {
    "bmp280": Chip(
        driver=".bmp280:Bmp280", twin=".bmp280:Bmp280", role="baro", supply="3V3", addresses=_BME,
        rate_hz=25.0, registers=("BMP280",),
    ),
    "bme280": Chip(
        driver=".bmp280:Bmp280", twin=".bmp280:Bme280", role="baro", supply="3V3", addresses=_BME,
        rate_hz=25.0, registers=("BMP280",),
    ),
    "bmp388": Chip(
        driver=".bmp388:Bmp388", twin=".bmp388:Bmp388", role="baro", supply="3V3", addresses=_BME,
        rate_hz=25.0, registers=("BMP388",),
    ),
    "bmp390": Chip(
        driver=".bmp388:Bmp390", twin=".bmp388:Bmp390", role="baro", supply="3V3",
        addresses=(0x77, 0x76), rate_hz=25.0, registers=("BMP388",),
    ),
    "bno055": Chip(
        driver=".bno055:Bno055", twin=".bno055:Bno055", role="imu",
        supply="3V3; PS1 to 3V3 selects the UART", baud=115200, rate_hz=100.0,
        registers=("BNO055",),
    ),
    "crsf": Chip(
        driver=".crsf:Crsf", twin=".crsf:Crsf", role="transmitter", supply="5V", baud=420000,
        rate_hz=100.0, registers=("CHANNELS", "CRSF"),
    ),
    "drv8833": Chip(
        driver=".drv8833:Drv8833", twin=".drv8833:Drv8833",
        supply="VM: motor battery, 2.7 to 10.8 V", registers=("DRV8833",),
    ),
    "dwm1001": Chip(
        driver=".dwm1001:Dwm1001", twin=".dwm1001:Dwm1001", role="tag", supply="3V3", baud=115200,
        registers=("DWM1001",),
    ),
    "esc-pwm": Chip(
        driver=".esc:EscPwm", twin=".esc:EscPwm",
        supply="motor battery; its own 5 V output stays open",
    ),
    "gps-nmea": Chip(
        driver=".gps:GpsNmea", twin=".gps_nmea:GpsNmea", role="gps", supply="3V3", baud=9600,
        rate_hz=5.0, registers=("GNSS", "NMEA"),
    ),
    "gps-ubx": Chip(
        driver=".gps_ubx:GpsUbx", twin=".gps_ubx:GpsUbx", role="gps", supply="3V3", baud=9600,
        rate_hz=5.0, registers=("GNSS", "UBX"),
    ),
    "hcsr04": Chip(
        driver=".hcsr04:HcSr04", twin=".hcsr04:HcSr04", role="sonar",
        supply="5V; echo through a divider to 3.3 V", registers=("HCSR04",),
    ),
    **{
        name: Chip(
            driver=".tag_camera:TagCamera", twin=".camera:Camera", role="camera",
            supply="the ribbon cable of the Pi's camera port", rate_hz=10.0,
        )
        for name in ("imx219", "imx296", "imx708", "ov5647")
    },
    "icm20948": Chip(
        driver=".icm20948:Icm20948", twin=".icm20948:Icm20948", role="imu", supply="3V3",
        addresses=(0x69, 0x68), rate_hz=100.0, registers=("ICM20948", "AK09916"),
    ),
    "ina219": Chip(
        driver=".ina219:Ina219", twin=".ina219:Ina219", role="power",
        supply="3V3; shunt in the battery's + wire", addresses=_INA, registers=("INA219",),
    ),
    "ina226": Chip(
        driver=".ina226:Ina226", twin=".ina226:Ina226", role="power",
        supply="3V3; shunt in the battery's + wire", addresses=_INA, registers=("INA226",),
    ),
    "ina260": Chip(
        driver=".ina226:Ina260", twin=".ina226:Ina260", role="power",
        supply="3V3; its shunt in the battery's + wire", addresses=_INA,
        registers=("INA226", "INA260"),
    ),
    "l293d": Chip(
        driver=".l293d:L293D", twin=".l293d:L293D",
        supply="VCC1 5V; VCC2 motor battery, 4.5 to 36 V",
    ),
    "mocap": Chip(
        driver=".mocap:Mocap", twin=".mocap:Mocap", role="tag", supply="3V3", baud=115200,
        rate_hz=40.0, registers=("MOCAP",),
    ),
    "mpu6050": Chip(
        driver=".mpu6050:Mpu6050", twin=".mpu6050:Mpu6050", role="imu", supply="3V3",
        addresses=_MPU, rate_hz=100.0, registers=("MPU6050",),
    ),
    "mpu6500": Chip(
        driver=".mpu6050:Mpu6050", twin=".mpu6050:Mpu6500", role="imu", supply="3V3",
        addresses=_MPU, rate_hz=100.0, registers=("MPU6050", "MPU6500"),
    ),
    "mpu9250": Chip(
        driver=".mpu6050:Mpu6050", twin=".mpu6050:Mpu9250", role="imu", supply="3V3",
        addresses=_MPU, rate_hz=100.0, registers=("MPU6050", "MPU6500"),
    ),
    "ms5607": Chip(
        driver=".ms5611:Ms5607", twin=".ms5607:Ms5607", role="baro", supply="3V3", addresses=_MS,
        rate_hz=50.0, registers=("MS5611",),
    ),
    "ms5611": Chip(
        driver=".ms5611:Ms5611", twin=".ms5611:Ms5611", role="baro", supply="3V3", addresses=_MS,
        rate_hz=50.0, registers=("MS5611",),
    ),
    "pca9685": Chip(
        driver=".pca9685:Pca9685", twin=".pca9685:Pca9685",
        supply="VCC 3V3; V+ servo supply, 5 to 6 V", addresses=tuple(range(0x40, 0x70)),
        registers=("PCA9685",),
    ),
    "pmw3901": Chip(
        driver=".pmw3901:Pmw3901", twin=".pmw3901:Pmw3901", role="flow", supply="3V3",
        rate_hz=50.0, registers=("PMW3901",),
    ),
    "sbus": Chip(
        driver=".sbus:Sbus", twin=".sbus:Sbus", role="transmitter",
        supply="5V; its line through an inverter", baud=100000, rate_hz=100.0,
        registers=("CHANNELS", "SBUS"),
    ),
    "tb6612": Chip(
        driver=".tb6612:Tb6612", twin=".tb6612:Tb6612",
        supply="VCC 3V3; VM motor battery, 2.5 to 13.5 V",
    ),
    "tfluna": Chip(
        driver=".tfluna:TfLuna", twin=".tfluna:TfLuna", role="ranger",
        supply="5V; its pin 5 to GND selects I2C",
        # The address can be set and saved.
        addresses=(0x10, *range(0x08, 0x10), *range(0x11, 0x78)), rate_hz=50.0,
        registers=("TFLuna",),
    ),
    "vl53l1x": Chip(
        driver=".vl53l1x:Vl53L1X", twin=".vl53l1x:Vl53L1X", role="ranger", supply="3V3",
        addresses=(0x29,), rate_hz=50.0, registers=("VL53L1X",),
    ),
}  # fmt: skip
