"""What runs inside images: the checks, and the guard. Standard library, torch and numpy only."""
