"""The RPi.GPIO-compatible module: its API, its errors, and the wires behind it."""

from collections.abc import Iterator
from typing import Any

import pytest

from blimp import airframe
from blimp.clock import ManualClock
from blimp.sim.seam import linux_devices
from blimp.sim.world import World

TRIGGER, ECHO = 23, 24
AIN1, AIN2, NSLEEP = 6, 13, 12


class Header:
    """The twin's pins, with time in flight."""

    def __init__(self, world: World, clock: ManualClock, gpio: Any) -> None:
        self.world = world
        self.clock = clock
        self.gpio = gpio

    def ping(self) -> None:
        self.gpio.output(TRIGGER, 1)
        self.clock.advance(12e-6)
        self.gpio.output(TRIGGER, 0)


@pytest.fixture
def header() -> Iterator[Header]:
    clock = ManualClock()
    world = World(airframe.load("twin"), clock=clock)
    world.physics.place(position_ned_m=(0.0, 0.0, -1.0))
    with world, linux_devices(world, clock=clock):
        import RPi.GPIO as GPIO

        yield Header(world, clock, GPIO)


@pytest.fixture
def gpio(header: Header) -> Any:
    header.gpio.setmode(header.gpio.BCM)
    return header.gpio


def test_pins_need_a_numbering(header: Header) -> None:
    gpio = header.gpio
    with pytest.raises(RuntimeError, match="Please set pin numbering mode"):
        gpio.setup(4, gpio.OUT)
    assert gpio.getmode() is None
    with pytest.raises(ValueError, match="An invalid mode"):
        gpio.setmode(12)
    gpio.setmode(gpio.BOARD)
    with pytest.raises(ValueError, match="A different mode has already been set"):
        gpio.setmode(gpio.BCM)
    gpio.setup(31, gpio.OUT, initial=1)  # board pin 31 is BCM 6
    assert header.world.electronics.pins.duty(6) == 1.0
    with pytest.raises(ValueError, match="channel sent is invalid"):
        gpio.setup(1, gpio.OUT)  # 3.3 V
    gpio.cleanup()
    assert gpio.getmode() is None


def test_setup_refuses_what_rpi_gpio_refuses(gpio: Any) -> None:
    with pytest.raises(ValueError, match="channel sent is invalid"):
        gpio.setup(28, gpio.OUT)
    with pytest.raises(ValueError, match="invalid direction"):
        gpio.setup(4, 7)
    with pytest.raises(ValueError, match="not valid for outputs"):
        gpio.setup(4, gpio.OUT, pull_up_down=gpio.PUD_UP)
    with pytest.raises(ValueError, match="not valid for inputs"):
        gpio.setup(4, gpio.IN, initial=1)
    with pytest.raises(ValueError, match="pull_up_down"):
        gpio.setup(4, gpio.IN, pull_up_down=5)
    with pytest.raises(ValueError, match="must be an integer"):
        gpio.setup("four", gpio.IN)
    with pytest.raises(RuntimeError, match="not been set up as an OUTPUT"):
        gpio.output(4, 1)
    with pytest.raises(RuntimeError, match=r"must setup\(\) the GPIO channel first"):
        gpio.input(4)


def test_pwm_drives_a_motor(header: Header, gpio: Any) -> None:
    gpio.setup([AIN1, AIN2, NSLEEP], gpio.OUT, initial=0)
    gpio.output(NSLEEP, 1)
    pwm = gpio.PWM(AIN1, 100)
    pwm.ChangeDutyCycle(80.0)
    assert header.world.outputs["left"] == 0.0  # not started
    pwm.start(25.0)
    assert header.world.outputs["left"] == 0.25
    pwm.ChangeDutyCycle(62.5)
    pwm.ChangeFrequency(200)
    assert header.world.outputs["left"] == 0.625
    with pytest.raises(RuntimeError, match="A PWM object already exists"):
        gpio.PWM(AIN1, 50)
    for duty in (-1.0, 100.1, float("nan")):
        with pytest.raises(ValueError, match="dutycycle"):
            pwm.ChangeDutyCycle(duty)
    with pytest.raises(ValueError, match="frequency"):
        pwm.ChangeFrequency(0)
    assert header.world.outputs["left"] == 0.625
    pwm.stop()
    pwm.stop()
    assert header.world.outputs["left"] == 0.0
    with pytest.raises(RuntimeError, match="as an output first"):
        gpio.PWM(5, 50)
    again = gpio.PWM(AIN1, 50)
    again.start(100)
    gpio.cleanup()
    assert header.world.outputs["left"] == 0.0


def test_edges_are_reported_at_their_exact_time(header: Header, gpio: Any) -> None:
    gpio.setup(TRIGGER, gpio.OUT, initial=0)
    gpio.setup(ECHO, gpio.IN)
    reported: list[tuple[int, int, float]] = []
    gpio.add_event_detect(
        ECHO,
        gpio.BOTH,
        callback=lambda c: reported.append((c, gpio.input(c), header.clock.now_s())),
    )
    header.ping()
    header.world.advance(0.05)
    (c1, up, rise_s), (c2, down, fall_s) = reported
    assert (c1, up, c2, down) == (ECHO, 1, ECHO, 0)
    assert rise_s == pytest.approx(12e-6 + 450e-6, abs=1e-9)
    assert (fall_s - rise_s) * 340.28 / 2 == pytest.approx(1.0, abs=0.02)
    assert header.clock.now_s() == pytest.approx(0.05 + 12e-6)
    assert gpio.event_detected(ECHO)
    assert not gpio.event_detected(ECHO)


def test_detection_rules(header: Header, gpio: Any) -> None:
    gpio.setup(TRIGGER, gpio.OUT, initial=0)
    with pytest.raises(RuntimeError, match="as an input first"):
        gpio.add_event_detect(TRIGGER, gpio.RISING)
    gpio.setup(ECHO, gpio.IN)
    with pytest.raises(ValueError, match="RISING, FALLING or BOTH"):
        gpio.add_event_detect(ECHO, 30)
    with pytest.raises(ValueError, match="Bouncetime"):
        gpio.add_event_detect(ECHO, gpio.RISING, bouncetime=0)
    with pytest.raises(TypeError, match="callable"):
        gpio.add_event_detect(ECHO, gpio.RISING, callback=4)
    with pytest.raises(RuntimeError, match="add_event_detect first"):
        gpio.add_event_callback(ECHO, print)
    reported: list[str] = []
    gpio.add_event_detect(
        ECHO, gpio.RISING, callback=lambda _: reported.append("a"), bouncetime=150
    )
    gpio.add_event_callback(ECHO, lambda _: reported.append("b"))
    with pytest.raises(RuntimeError, match="Conflicting edge detection"):
        gpio.add_event_detect(ECHO, gpio.FALLING)
    for _ in range(3):  # every 0.1 s, of which the second is a bounce
        header.ping()
        header.world.advance(0.1)
    assert reported == ["a", "b", "a", "b"]
    gpio.remove_event_detect(ECHO)
    header.ping()
    header.world.advance(0.1)
    assert len(reported) == 4
    assert not gpio.event_detected(ECHO)
