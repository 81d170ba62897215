"""Inertial sensors. See the package."""

from typing import Final


class MPU6050:
    """InvenSense MPU-6050, RM-MPU-6000A-00 rev 4.2. Reads auto-increment."""

    ADDRESSES: Final = (0x68, 0x69)  # AD0 low, AD0 high
    SMPLRT_DIV: Final = 0x19  # sample rate = gyro output rate / (1 + this)
    CONFIG: Final = 0x1A  # DLPF_CFG 2..0
    DLPF_260_HZ: Final = 0  # gyro output rate 8 kHz; 1 kHz with every other setting
    DLPF_184_HZ: Final = 1
    DLPF_94_HZ: Final = 2
    DLPF_44_HZ: Final = 3
    DLPF_21_HZ: Final = 4
    DLPF_10_HZ: Final = 5
    DLPF_5_HZ: Final = 6
    GYRO_CONFIG: Final = 0x1B  # FS_SEL 4..3
    FS_250_DPS: Final = 0x00
    FS_500_DPS: Final = 0x08
    FS_1000_DPS: Final = 0x10
    FS_2000_DPS: Final = 0x18
    ACCEL_CONFIG: Final = 0x1C  # AFS_SEL 4..3
    AFS_2_G: Final = 0x00
    AFS_4_G: Final = 0x08
    AFS_8_G: Final = 0x10
    AFS_16_G: Final = 0x18
    RANGE_MASK: Final = 0x18
    INT_PIN_CFG: Final = 0x37
    INT_ENABLE: Final = 0x38
    INT_STATUS: Final = 0x3A
    DATA_RDY_INT: Final = 0x01
    ACCEL_XOUT_H: Final = 0x3B  # x, y, z as big-endian i16, then temperature, then gyro
    TEMP_OUT_H: Final = 0x41
    GYRO_XOUT_H: Final = 0x43
    DATA_LENGTH: Final = 14
    SIGNAL_PATH_RESET: Final = 0x68
    USER_CTRL: Final = 0x6A
    PWR_MGMT_1: Final = 0x6B
    PWR_MGMT_1_RESET: Final = 0x40  # asleep: data registers hold still
    DEVICE_RESET: Final = 0x80  # clears itself
    SLEEP: Final = 0x40
    CYCLE: Final = 0x20
    TEMP_DIS: Final = 0x08
    CLKSEL_INTERNAL: Final = 0
    CLKSEL_PLL_X_GYRO: Final = 1
    PWR_MGMT_2: Final = 0x6C
    WHO_AM_I: Final = 0x75
    CHIP_ID: Final = 0x68  # whatever AD0 is
    RESET_S: Final = 0.1  # register map section 4.28: wait after DEVICE_RESET
    GYRO_START_UP_S: Final = 0.03  # PS-MPU-6000A-00 section 6.1
