"""One module per figure or table of the paper: which runs it takes, and what is made of them."""
