"""Register maps: addresses, bits, identities and reset values. No conversion code.

Drivers and simulated chips both read these maps, and each writes its own arithmetic from
the datasheet: so they can share a register's address, and no mistake in a formula.

Names are the datasheets'. One class is one chip and only a namespace; it is never made.
"""

from typing import Final


class BMP280:
    """Bosch BMP280, BST-BMP280-DS001 section 4: memory map. Reads auto-increment."""

    ADDRESSES: Final = (0x76, 0x77)  # SDO low, SDO high
    CALIB00: Final = 0x88  # T1 u16, T2 T3 i16, P1 u16, P2..P9 i16, all little-endian
    CALIB_LENGTH: Final = 24
    ID: Final = 0xD0
    CHIP_ID: Final = 0x58
    RESET: Final = 0xE0
    RESET_WORD: Final = 0xB6  # any other value has no effect; RESET reads back 0x00
    STATUS: Final = 0xF3
    STATUS_MEASURING: Final = 0x08
    STATUS_IM_UPDATE: Final = 0x01  # calibration is being copied from non-volatile memory
    CTRL_MEAS: Final = 0xF4  # osrs_t 7..5, osrs_p 4..2, mode 1..0
    CTRL_MEAS_RESET: Final = 0x00
    OSRS_T_SHIFT: Final = 5
    OSRS_P_SHIFT: Final = 2
    OSRS_SKIPPED: Final = 0  # the reading is then 0x80000
    OSRS_X1: Final = 1
    OSRS_X2: Final = 2
    OSRS_X4: Final = 3
    OSRS_X8: Final = 4
    OSRS_X16: Final = 5
    MODE_MASK: Final = 0x03
    MODE_SLEEP: Final = 0x00
    MODE_FORCED: Final = 0x01
    MODE_NORMAL: Final = 0x03
    CONFIG: Final = 0xF5  # t_sb 7..5, filter 4..2, spi3w_en 0; writes may be lost in normal mode
    CONFIG_RESET: Final = 0x00
    T_SB_SHIFT: Final = 5
    T_SB_0_5_MS: Final = 0
    T_SB_62_5_MS: Final = 1
    FILTER_SHIFT: Final = 2
    FILTER_OFF: Final = 0
    FILTER_2: Final = 1
    FILTER_4: Final = 2
    FILTER_8: Final = 3
    FILTER_16: Final = 4
    PRESS_MSB: Final = 0xF7  # msb, lsb, xlsb(7..4): 20 bits, then the same for temperature
    TEMP_MSB: Final = 0xFA
    DATA_LENGTH: Final = 6
    DATA_RESET: Final = 0x80000  # both readings before the first conversion
    START_UP_S: Final = 0.002  # from power-on or reset to the first communication


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


class INA219:
    """Texas Instruments INA219, SBOS448G. 16-bit big-endian registers, no auto-increment."""

    ADDRESSES: Final = tuple(range(0x40, 0x50))
    CONFIG: Final = 0x00
    CONFIG_RESET: Final = 0x399F
    RST: Final = 0x8000  # clears itself
    BRNG_32V: Final = 0x2000
    PG_40_MV: Final = 0x0000
    PG_80_MV: Final = 0x0800
    PG_160_MV: Final = 0x1000
    PG_320_MV: Final = 0x1800
    PG_MASK: Final = 0x1800
    BADC_SHIFT: Final = 7
    SADC_SHIFT: Final = 3
    ADC_12_BIT: Final = 0x3  # one sample, 532 µs
    ADC_4_SAMPLES: Final = 0xA  # 2.13 ms
    ADC_16_SAMPLES: Final = 0xC  # 8.51 ms
    MODE_MASK: Final = 0x0007
    MODE_POWER_DOWN: Final = 0x0
    MODE_SHUNT_AND_BUS_CONTINUOUS: Final = 0x7
    SHUNT_VOLTAGE: Final = 0x01  # i16, 10 µV a bit at every gain
    BUS_VOLTAGE: Final = 0x02  # bits 15..3, 4 mV a bit
    CNVR: Final = 0x0002  # a conversion is ready; reading POWER clears it
    OVF: Final = 0x0001  # current or power arithmetic overflowed
    POWER: Final = 0x03  # 20 current bits a bit
    CURRENT: Final = 0x04  # i16; 0 while CALIBRATION is 0
    CALIBRATION: Final = 0x05  # bit 0 is not kept
    CALIBRATION_RESET: Final = 0x0000


class PCA9685:
    """NXP PCA9685, rev 4. Auto-increments only while MODE1_AI is set."""

    ADDRESSES: Final = tuple(range(0x40, 0x70))
    ALL_CALL_ADDRESS: Final = 0x70  # answered as well while MODE1_ALLCALL is set
    MODE1: Final = 0x00
    MODE1_RESET: Final = 0x11
    MODE1_RESTART: Final = 0x80
    MODE1_EXTCLK: Final = 0x40
    MODE1_AI: Final = 0x20
    MODE1_SLEEP: Final = 0x10  # oscillator off: no output pulses; PRE_SCALE can be written
    MODE1_SUB1: Final = 0x08
    MODE1_SUB2: Final = 0x04
    MODE1_SUB3: Final = 0x02
    MODE1_ALLCALL: Final = 0x01
    MODE2: Final = 0x01
    MODE2_RESET: Final = 0x04
    MODE2_INVRT: Final = 0x10
    MODE2_OCH: Final = 0x08  # outputs change on acknowledge instead of on stop
    MODE2_OUTDRV: Final = 0x04  # totem pole
    SUBADR1: Final = 0x02
    ALLCALLADR: Final = 0x05
    ALLCALLADR_RESET: Final = 0xE0
    LED0_ON_L: Final = 0x06  # ON low, ON high, OFF low, OFF high: four bytes a channel
    LED_STRIDE: Final = 4
    CHANNELS: Final = 16
    STEPS: Final = 4096  # counts a period
    FULL: Final = 0x10  # in an ON or OFF high byte: always on, always off; off wins
    ALL_LED_ON_L: Final = 0xFA  # write only, reads 0
    ALL_LED_ON_H: Final = 0xFB
    ALL_LED_OFF_L: Final = 0xFC
    ALL_LED_OFF_H: Final = 0xFD
    PRE_SCALE: Final = 0xFE  # writable only while MODE1_SLEEP is set
    PRE_SCALE_RESET: Final = 0x1E
    PRE_SCALE_MIN: Final = 0x03
    OSCILLATOR_HZ: Final = 25e6
    OSCILLATOR_START_UP_S: Final = 0.0005  # from SLEEP cleared to stable pulses


class TFLuna:
    """Benewake TF-Luna, SJ-PM-TF-Luna A05, I2C register table. Little-endian, increments."""

    ADDRESS: Final = 0x10
    DIST_LOW: Final = 0x00  # u16, cm
    AMP_LOW: Final = 0x02  # u16; below 100 or at 65535 the distance is not to be trusted
    TEMP_LOW: Final = 0x04  # i16, 0.01 degrees Celsius
    TICK_LOW: Final = 0x06  # u16, ms, stamps the measurement
    ERROR_LOW: Final = 0x08  # u16
    DATA_LENGTH: Final = 10
    VERSION_REVISION: Final = 0x0A  # then minor, major
    SN: Final = 0x10  # 14 bytes of ASCII
    SN_LENGTH: Final = 14
    SAVE: Final = 0x20  # write 1
    SHUTDOWN_REBOOT: Final = 0x21  # write 2: reboot
    SLAVE_ADDR: Final = 0x22
    MODE: Final = 0x23
    MODE_CONTINUOUS: Final = 0x00
    MODE_TRIGGER: Final = 0x01
    TRIG_ONE_SHOT: Final = 0x24
    ENABLE: Final = 0x25  # 1 measures, 0 is off
    FPS_LOW: Final = 0x26  # u16, Hz
    FPS_RESET: Final = 100
    LOW_POWER: Final = 0x28
    RESTORE_FACTORY_DEFAULTS: Final = 0x29
    AMP_THR_LOW: Final = 0x2A
    SIGNATURE: Final = 0x3C
    SIGNATURE_BYTES: Final = b"LUNA"
    AMP_MIN: Final = 100
    AMP_SATURATED: Final = 0xFFFF


class HCSR04:
    """HC-SR04 ultrasonic ranger: no registers, two wires. Times from its data sheet."""

    TRIGGER_S: Final = 10e-6  # shortest trigger pulse
    CYCLE_S: Final = 0.06  # shortest time between triggers
    NO_ECHO_S: Final = 0.038  # echo stays high this long when nothing came back
    MIN_M: Final = 0.02
    MAX_M: Final = 4.0


class DRV8833:
    """Texas Instruments DRV8833 dual H-bridge, SLVSAR1E: no registers, five wires.

    Table 2: IN1 PWM with IN2 low drives forward, IN2 PWM with IN1 low reverse, both low
    coast, both high brake. nSLEEP low stops the bridge whatever the inputs are.
    """

    WAKE_UP_S: Final = 0.001


class DWM1001:
    """Decawave DWM1001 shell at 115200 baud, `lep` output, one line a position."""

    PREFIX: Final = "POS"
    ENTER: Final = b"\r\r"  # two returns switch the serial port from generic to shell mode
    TOGGLE_POSITION_LINES: Final = b"lep\r"
    QUALITY_MAX: Final = 100


class NMEA:
    """NMEA 0183 framing."""

    MAX_LINE: Final = 82  # characters from $ to the line feed, both counted
    START: Final = 0x24  # $
    CHECKSUM_MARK: Final = 0x2A  # *
