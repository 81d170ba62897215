"""What drives motors and servos. See the package."""

from typing import Final


class PCA9685:
    """NXP PCA9685, rev 4. Auto-increments only while MODE1_AI is set."""

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


class DRV8833:
    """Texas Instruments DRV8833 dual H-bridge, SLVSAR1E: no registers, five wires.

    Table 2: IN1 PWM with IN2 low drives forward, IN2 PWM with IN1 low reverse, both low
    coast, both high brake. nSLEEP low stops the bridge whatever the inputs are.
    """

    WAKE_UP_S: Final = 0.001
