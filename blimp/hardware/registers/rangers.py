"""Rangers. See the package."""

from typing import Final


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
