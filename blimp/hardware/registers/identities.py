"""By what a chip is known, for a message that names the one that sits in another's place.

Sources: the data sheets' identity registers; those of InvenSense's parts as in Linux
(drivers/iio/imu/inv_mpu6050), of engineering samples as in Bosch's own drivers.
"""

from typing import Final

# How an identity is read: bytes behind a register number of 8 bits or, negative, of 16.
BYTE: Final = 1
WORD: Final = 2
WIDE_BYTE: Final = -1
WIDE_WORD: Final = -2

_INERTIAL: Final = (
    (0x75, BYTE, {
        0x11: "ICM-20600", 0x12: "ICM-20602", 0x19: "MPU-6886", 0x20: "ICM-20690",
        0x42: "ICM-42605", 0x47: "ICM-42688-P", 0x68: "MPU-6050", 0x70: "MPU-6500",
        0x71: "MPU-9250", 0x73: "MPU-9255", 0x74: "MPU-6515", 0x78: "MPU-6880",
        0x98: "ICM-20689", 0xA6: "ICM-20609", 0xA9: "IAM-20680", 0xAE: "ICM-20608-D",
        0xAF: "ICM-20608-G",
    }),
    (0x00, BYTE, {
        0x1E: "BMI088", 0x24: "BMI270", 0xD1: "BMI160", 0xE0: "ICM-20648", 0xE1: "ICM-20649",
        0xEA: "ICM-20948",
    }),
    (0x0F, BYTE, {0xD3: "L3G4200D"}),
)  # fmt: skip
_BAROMETERS: Final = (
    (0xD0, BYTE, {
        0x55: "BMP180 or BMP085", 0x56: "BMP280", 0x57: "BMP280", 0x58: "BMP280",
        0x60: "BME280", 0x61: "BME680 or BME688",
    }),
    (0x00, BYTE, {0x50: "BMP388 or BMP384", 0x60: "BMP390"}),
    (0x01, BYTE, {0x50: "BMP581", 0x51: "BMP580"}),
    (0x0D, BYTE, {0x10: "DPS310 or SPL06"}),
)  # fmt: skip
_POWER: Final = (
    (0xFE, WORD, {0x190F: "SQ52201"}),  # of Silergy, on boards sold as INA226
    (0xFF, WORD, {0x2260: "INA226", 0x2270: "INA260", 0x3220: "INA3221"}),
    (0x3F, WORD, {
        0x2280: "INA228", 0x2281: "INA228", 0x2370: "INA237", 0x2371: "INA237",
        0x2380: "INA238", 0x2381: "INA238",
    }),
    (0x00, WORD, {0x399F: "INA219 or INA220"}),  # after power-on
)  # fmt: skip
_AT_0X40: Final = ((0x05, BYTE, {0xE0: "PCA9685"}),)  # its all-call address, after power-on
_RANGERS: Final = (
    (0xC0, BYTE, {0xEE: "VL53L0X"}),
    (0x00, BYTE, {0xA0: "BNO055"}),
    (0x0000, WIDE_BYTE, {0xB4: "VL6180X"}),
    (0x010F, WIDE_WORD, {
        0xEACC: "VL53L1X", 0xEAAA: "VL53L3CX", 0xEBAA: "VL53L4CD or VL53L4CX", 0xECAA: "VL53L4ED",
    }),
)  # fmt: skip

# At each address: a register, how it is read, and what its values mean.
IDENTITIES: Final[dict[int, tuple[tuple[int, int, dict[int, str]], ...]]] = {
    **dict.fromkeys((0x68, 0x69), _INERTIAL),
    **dict.fromkeys((0x76, 0x77), _BAROMETERS),
    0x29: _RANGERS,
    **dict.fromkeys(range(0x40, 0x50), _POWER),
    0x40: _POWER + _AT_0X40,
}
