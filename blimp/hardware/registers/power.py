"""Power monitors. See the package."""

from typing import Final


class INA219:
    """Texas Instruments INA219, SBOS448G. 16-bit big-endian registers, no auto-increment."""

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


class INA226:
    """Texas Instruments INA226, SBOS547. 16-bit big-endian registers, no auto-increment."""

    CONFIG: Final = 0x00
    CONFIG_RESET: Final = 0x4127
    CONFIG_FIXED: Final = 0x4000  # bits 14..12 always read 100
    RST: Final = 0x8000  # clears itself
    AVG_SHIFT: Final = 9
    AVG_1: Final = 0
    AVG_16: Final = 2
    VBUSCT_SHIFT: Final = 6
    VSHCT_SHIFT: Final = 3
    CT_588_US: Final = 3
    CT_1100_US: Final = 4
    MODE_MASK: Final = 0x0007
    MODE_SHUNT_AND_BUS_CONTINUOUS: Final = 0x7
    SHUNT_VOLTAGE: Final = 0x01  # i16, 2.5 µV a bit
    BUS_VOLTAGE: Final = 0x02  # 1.25 mV a bit, bit 15 is 0
    POWER: Final = 0x03  # 25 current bits a bit
    CURRENT: Final = 0x04  # i16; 0 while CALIBRATION is 0
    CALIBRATION: Final = 0x05  # 15 bits
    MASK_ENABLE: Final = 0x06
    CVRF: Final = 0x0008  # a conversion is ready; reading this register clears it
    OVF: Final = 0x0004  # current or power arithmetic overflowed
    MANUFACTURER_ID: Final = 0xFE
    MANUFACTURER: Final = 0x5449  # "TI"
    DIE_ID: Final = 0xFF  # device 15..4, revision 3..0
    DIE_SHIFT: Final = 4
    DIE: Final = 0x226


class INA260:
    """Texas Instruments INA260, SBOS656: an INA226 with its shunt (2 mΩ) inside."""

    CONFIG_RESET: Final = 0x6127
    CONFIG_FIXED: Final = 0x6000
    CURRENT: Final = 0x01  # i16, 1.25 mA a bit
    POWER: Final = 0x03  # 10 mW a bit
    DIE: Final = 0x227
