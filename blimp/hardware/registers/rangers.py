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


class VL53L1X:
    """ST VL53L1X, 16-bit register numbers, big-endian values; reads and writes increment.

    Its data sheet (DS12385) names no registers: these are those of ST's ultra lite driver
    (UM2510, STSW-IMG009), with the names of its sources.
    """

    ADDRESS: Final = 0x29  # after power-on; changed by register only
    SOFT_RESET: Final = 0x0000  # 0 holds it in reset, 1 lets it boot
    VHV_LOOP_BOUND: Final = 0x0008
    VHV_TWO_BOUNDS: Final = 0x09
    VHV_INIT: Final = 0x000B  # 0: start from the temperature before
    CONFIGURATION: Final = 0x002D  # 91 bytes, to SYSTEM_MODE_START
    GPIO_HV_MUX_CTRL: Final = 0x0030
    INTERRUPT_ACTIVE_LOW: Final = 0x10
    GPIO_TIO_HV_STATUS: Final = 0x0031  # bit 0 is the level of the interrupt
    TIMEOUT_MACROP_A: Final = 0x005E  # u16, an encoded time, as is B
    TIMEOUT_MACROP_B: Final = 0x0061
    # A and B for a timing budget in ms, long distance mode: VL53L1X_SetTimingBudgetInMs.
    LONG_TIMING: Final = {
        20: (0x001E, 0x0022), 33: (0x0060, 0x006E), 50: (0x00AD, 0x00C6),
        100: (0x01CC, 0x01EA), 200: (0x02D9, 0x02F8), 500: (0x048F, 0x04A4),
    }  # fmt: skip
    INTERMEASUREMENT: Final = 0x006C  # u32, in periods of the oscillator
    INTERRUPT_CLEAR: Final = 0x0086
    MODE_START: Final = 0x0087
    STOP: Final = 0x00
    RANGING: Final = 0x40
    RANGE_STATUS: Final = 0x0089  # 4..0; then report status, stream count, and at
    RESULT_LENGTH: Final = 17
    DISTANCE: Final = 0x0096  # u16, mm
    STATUS_MASK: Final = 0x1F
    RANGE_COMPLETE: Final = 9
    OSC_CALIBRATE_VAL: Final = 0x00DE  # u16, 9..0
    FIRMWARE_STATUS: Final = 0x00E5
    BOOTED: Final = 0x01
    MODEL_ID: Final = 0x010F  # then the module type
    IDENTITY: Final = 0xEACC
    MASK_REVISION: Final = 0x0111  # 0x10
    BOOT_S: Final = 0.0012  # DS12385, 2.6
