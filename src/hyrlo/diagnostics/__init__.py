"""Can these data be reached, do they cover, and what will the forward pass make of them."""
