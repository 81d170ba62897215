"""Rotations on plain floats: on 3-vectors they are faster than numpy's.

Quaternions are (w, x, y, z), unit length, body to NED. Source: Diebel, "Representing
Attitude" (2006), sections 6.5 and 8.2.
"""

from math import asin, atan2, cos, hypot, pi, sin, sqrt

from blimp.types import Quaternion, Vec3


def rotate(q: Quaternion, v: Vec3) -> Vec3:
    """Turn body vector `v` into the world frame."""
    w, x, y, z = q
    vx, vy, vz = v
    tx = 2.0 * (y * vz - z * vy)
    ty = 2.0 * (z * vx - x * vz)
    tz = 2.0 * (x * vy - y * vx)
    return (
        vx + w * tx + y * tz - z * ty,
        vy + w * ty + z * tx - x * tz,
        vz + w * tz + x * ty - y * tx,
    )


def rotate_back(q: Quaternion, v: Vec3) -> Vec3:
    """Turn world vector `v` into the body frame."""
    w, x, y, z = q
    return rotate((w, -x, -y, -z), v)


def integrate(q: Quaternion, rates_body_radps: Vec3, dt_s: float) -> Quaternion:
    """Advance attitude `q` by body rates over `dt_s`, exact for constant rates."""
    p, r, s = rates_body_radps
    angle = hypot(p, r, s) * dt_s
    if angle < 1e-12:
        return q
    k = sin(0.5 * angle) * dt_s / angle
    return normalize(multiply(q, (cos(0.5 * angle), p * k, r * k, s * k)))


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """Hamilton product: first `b`, then `a`."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


def normalize(q: Quaternion) -> Quaternion:
    """Scale `q` to unit length. Raises ZeroDivisionError on a null quaternion."""
    w, x, y, z = q
    k = 1.0 / sqrt(w * w + x * x + y * y + z * z)
    return (w * k, x * k, y * k, z * k)


def euler(q: Quaternion) -> Vec3:
    """Return (roll, pitch, yaw) in radians, pitch within ±pi/2."""
    w, x, y, z = q
    sin_pitch = max(-1.0, min(1.0, 2.0 * (w * y - z * x)))
    return (
        atan2(2.0 * (w * x + y * z), 1.0 - 2.0 * (x * x + y * y)),
        asin(sin_pitch),
        yaw_of(q),
    )


def yaw_of(q: Quaternion) -> float:
    """Return the yaw alone, in radians."""
    w, x, y, z = q
    return atan2(2.0 * (w * z + x * y), 1.0 - 2.0 * (y * y + z * z))


def from_euler(roll: float, pitch: float, yaw: float) -> Quaternion:
    """Return the quaternion of roll, pitch and yaw in radians (z-y-x order)."""
    cr, sr = cos(0.5 * roll), sin(0.5 * roll)
    cp, sp = cos(0.5 * pitch), sin(0.5 * pitch)
    cy, sy = cos(0.5 * yaw), sin(0.5 * yaw)
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


def wrap_pi(angle: float) -> float:
    """Return the same direction within [-pi, pi)."""
    return (angle + pi) % (2.0 * pi) - pi
