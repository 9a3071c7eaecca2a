"""Wrong answers to a lab, made from right ones: what every file under tests/planted/ holds."""


class Planted(dict):
    """Name of a mistake → (exercise, answer cell)."""

    def plant(self, exercise: str, right: str, *mistakes: tuple[str, str, str]) -> None:
        """Add a right answer's text with one place made wrong, for each (name, right place, wrong place)."""
        for name, old, new in mistakes:
            assert right.count(old) == 1, f"{name}: the place is there {right.count(old)} times"
            assert name not in self, f"{name} is there twice"
            self[name] = (exercise, f"# EXERCISE {exercise}\n" + right.replace(old, new))
