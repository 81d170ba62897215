"""Whether a ship is wired as its airframe says: by short pushes, with words for what is not."""
