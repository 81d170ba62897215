"""Physical constants. Sources: ISO 2533 (standard atmosphere), CGPM 1901 (gravity)."""

GRAVITY_MPS2 = 9.80665  # standard gravity, CGPM 1901
AIR_DENSITY_KGM3 = 1.225  # ISA, sea level: where an airframe's `heaviness_kg` is defined
