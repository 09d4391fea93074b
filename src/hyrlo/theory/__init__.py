"""The paper's theory, executable: finite and discounted MDPs, exact algorithms, bounds."""
