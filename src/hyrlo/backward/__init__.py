"""The backward pass: improve from the states that a roll-in reaches."""
