"""For authors and teachers: keep notebooks canonical, make the labs, run, check. Nothing imports this package."""
