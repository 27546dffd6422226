"""Study files: reading them, building what they name, listing what can be named, and the demo."""
