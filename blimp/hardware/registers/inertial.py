"""Inertial sensors. See the package."""

from typing import Final


class MPU6050:
    """InvenSense MPU-6050, RM-MPU-6000A-00 rev 4.2. Reads auto-increment."""

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


class MPU6500:
    """MPU-6500, RM-MPU-6500A-00 rev 2.1: an MPU-6050 but for what is here.

    MPU-9250 and -9255 are the same with a magnetometer on a bus of its own; the ICM-20689
    (DS-000143) has another temperature.
    """

    CHIP_ID: Final = 0x70
    CHIP_ID_MPU9250: Final = 0x71
    CHIP_ID_MPU9255: Final = 0x73
    CHIP_ID_MPU6515: Final = 0x74
    CHIP_ID_ICM20689: Final = 0x98  # and of most boards sold as MPU-6050 in the 2020s
    ACCEL_CONFIG_2: Final = 0x1D  # A_DLPF_CFG 2..0: the accelerometer's own filter
    PWR_MGMT_1_RESET: Final = 0x01  # awake; an ICM-20689 is asleep


class ICM20948:
    """TDK InvenSense ICM-20948, DS-000189. Four banks of registers; reads auto-increment."""

    REG_BANK_SEL: Final = 0x7F  # in every bank; the bank in bits 5..4
    BANK_SHIFT: Final = 4
    # bank 0
    WHO_AM_I: Final = 0x00
    CHIP_ID: Final = 0xEA
    USER_CTRL: Final = 0x03
    I2C_MST_EN: Final = 0x20
    I2C_MST_RST: Final = 0x02  # clears itself
    PWR_MGMT_1: Final = 0x06
    PWR_MGMT_1_RESET: Final = 0x41  # asleep
    DEVICE_RESET: Final = 0x80  # clears itself
    SLEEP: Final = 0x40
    CLKSEL_AUTO: Final = 0x01
    I2C_MST_STATUS: Final = 0x17  # cleared by reading
    SLV4_DONE: Final = 0x40
    ACCEL_XOUT_H: Final = 0x2D  # x, y, z as big-endian i16, then gyro, then temperature
    GYRO_XOUT_H: Final = 0x33
    TEMP_OUT_H: Final = 0x39
    DATA_LENGTH: Final = 14
    EXT_SLV_SENS_DATA_00: Final = 0x3B  # what the auxiliary bus read, right behind them
    EXT_LENGTH: Final = 24
    # bank 2
    GYRO_SMPLRT_DIV: Final = 0x00  # 1125 Hz / (1 + this)
    GYRO_CONFIG_1: Final = 0x01  # DLPFCFG 5..3, FS_SEL 2..1, FCHOICE 0
    ACCEL_SMPLRT_DIV_1: Final = 0x10  # 12 bits, the upper four here
    ACCEL_SMPLRT_DIV_2: Final = 0x11
    ACCEL_CONFIG: Final = 0x14  # as GYRO_CONFIG_1
    CONFIG_RESET: Final = 0x01
    DLPF_SHIFT: Final = 3
    FS_SHIFT: Final = 1
    FCHOICE: Final = 0x01  # the low-pass filter is in use
    RATE_HZ: Final = 1125.0
    # bank 3
    I2C_MST_CTRL: Final = 0x01
    MST_345_KHZ: Final = 0x07
    MST_P_NSR: Final = 0x10  # a stop between reads
    I2C_SLV0_ADDR: Final = 0x03  # address, and READ
    I2C_SLV0_REG: Final = 0x04
    I2C_SLV0_CTRL: Final = 0x05  # EN, and how many bytes
    I2C_SLV0_DO: Final = 0x06
    I2C_SLV4_ADDR: Final = 0x13  # one transfer of one byte, when CTRL is written
    I2C_SLV4_REG: Final = 0x14
    I2C_SLV4_CTRL: Final = 0x15
    I2C_SLV4_DO: Final = 0x16
    I2C_SLV4_DI: Final = 0x17
    SLV_READ: Final = 0x80
    SLV_EN: Final = 0x80
    RESET_S: Final = 0.1  # table 1: at most, to the first register access
    GYRO_START_UP_S: Final = 0.035  # table 1


class AK09916:
    """Asahi Kasei AK09916, the magnetometer in the ICM-20948, behind its auxiliary bus."""

    ADDRESS: Final = 0x0C
    WIA1: Final = 0x00  # company, then device
    IDENTITY: Final = bytes((0x48, 0x09))
    ST1: Final = 0x10  # then HXL to HZH, i16 little-endian, 0.15 µT a bit, TMPS, ST2
    ST1_DRDY: Final = 0x01
    ST2: Final = 0x18  # reading it ends a measurement's data
    ST2_HOFL: Final = 0x08  # the field is beyond the sensor: the data mean nothing
    DATA_LENGTH: Final = 9  # ST1 to ST2
    CNTL2: Final = 0x31
    SINGLE: Final = 0x01  # one measurement, 7.2 ms, then power-down
    SINGLE_S: Final = 0.0072
    CONTINUOUS_100_HZ: Final = 0x08
    CNTL3: Final = 0x32
    SRST: Final = 0x01


class BNO055:
    """Bosch BNO055 on its UART (115200 baud), BST-BNO055-DS000 revision 1.4."""

    # the protocol, 4.7
    START: Final = 0xAA
    WRITE: Final = 0x00
    READ: Final = 0x01
    DATA: Final = 0xBB  # then a length and as many bytes
    STATUS: Final = 0xEE  # then one of STATUSES
    WRITE_SUCCESS: Final = 0x01
    READ_FAIL: Final = 0x02
    INVALID_ADDRESS: Final = 0x04
    WRITE_DISABLED: Final = 0x05
    WRONG_START_BYTE: Final = 0x06
    STATUSES: Final = {
        0x01: "write done", 0x02: "read failed", 0x03: "write failed", 0x04: "no such register",
        0x05: "write disabled", 0x06: "wrong start byte", 0x07: "bus over-run",
        0x08: "too long", 0x09: "too short", 0x0A: "characters came too slowly",
    }  # fmt: skip
    CHARACTER_TIMEOUT_S: Final = 0.03
    # page 0, 4.3
    CHIP_ID: Final = 0x00  # then accelerometer, magnetometer and gyro
    IDENTITY: Final = bytes((0xA0, 0xFB, 0x32, 0x0F))
    PAGE_ID: Final = 0x07
    ACC_DATA: Final = 0x08  # i16 little-endian x, y, z, 100 a m/s²
    MAG_DATA: Final = 0x0E  # 16 a µT
    GYR_DATA: Final = 0x14  # 16 a degree/s
    TEMP: Final = 0x34  # i8, degrees Celsius
    DATA_LENGTH: Final = 45  # from ACC_DATA to TEMP
    CALIB_STAT: Final = 0x35
    UNIT_SEL: Final = 0x3B
    UNIT_SEL_RESET: Final = 0x80
    UNITS_SI_DEGREES: Final = 0x00
    OPR_MODE: Final = 0x3D
    CONFIG_MODE: Final = 0x00  # after a reset; the data registers are 0
    AMG_MODE: Final = 0x07  # all three sensors, no fusion
    PWR_MODE: Final = 0x3E
    SYS_TRIGGER: Final = 0x3F
    RST_SYS: Final = 0x20
    RESET_S: Final = 0.65  # table 0-2: from reset to configuration mode
    MODE_SWITCH_S: Final = 0.02  # table 3-6: 7 ms from configuration, 19 ms to it
