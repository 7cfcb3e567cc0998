"""The same schedule as the exact executor, reorganised: batched gradients, fused updates."""
